"""The setting that passes a chip off as another: asked where it means something, n/a elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import PROBLEM, machine_file, run

pytest.importorskip("torch")

ASKED = (
    "--only", "*/convolution/*", "--settings", "default,override-gfx1030", "--problem", PROBLEM,
    "--purpose", "inference",
)  # fmt: skip


def test_an_rdna1_chip_is_asked_as_gfx1030(tmp_path: Path) -> None:
    done = run(tmp_path / "out", "--simulate", machine_file(tmp_path / "machine.toml"), *ASKED)
    tried, default = done.of("override-gfx1030"), done.of("default")
    assert tried.state == default.state == "pass"
    assert (tried.native_isa, tried.effective_isa) == ("gfx1010", "gfx1030")
    assert default.effective_isa == "gfx1010"
    assert done.results.recommendation
    assert done.results.recommendation.configuration.setting == "default"
    assert not done.results.findings


@pytest.mark.parametrize(
    ("native", "effective", "why"),
    [
        ("gfx1030", "gfx1030", "only for native ISAs gfx101[0-2]|gfx103[1245]; this GPU is gfx1030"),
        ("gfx1010", "gfx1030", "an override is already set: this GPU runs as gfx1030"),
    ],
)
def test_elsewhere_it_is_not_applicable(tmp_path: Path, native: str, effective: str, why: str) -> None:
    machine = machine_file(tmp_path / "machine.toml")
    text = machine.read_text("utf-8").replace('native_isa = "gfx1010"', f'native_isa = "{native}"')
    text = text.replace('effective_isa = "gfx1010"', f'effective_isa = "{effective}"')
    machine.write_text(text, "utf-8")
    done = run(tmp_path / "out", "--simulate", machine, *ASKED)
    assert done.of("override-gfx1030").state == "n/a"
    assert done.of("override-gfx1030").evidence == (why,)
