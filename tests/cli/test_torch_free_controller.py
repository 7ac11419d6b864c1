"""The process that the user starts never imports torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import SMALL, rocmprobe, run

#: Notes, for every process, whether it is the controller and has imported torch when it ends.
SITE = """
import atexit, os, sys
def note():
    started = open("/proc/self/cmdline").read().split("\\0")
    if "rocmprobe" in " ".join(started) and "-c" not in started:
        loaded = "torch" in sys.modules
        open(os.path.join(os.path.dirname(__file__), f"{loaded}-{os.getpid()}"), "w").close()
atexit.register(note)
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sitecustomize.py").write_text(SITE)
    return {"PYTHONPATH": str(tmp_path)}


def imported_torch(folder: Path) -> list[bool]:
    return [path.name.startswith("True") for path in [*folder.glob("True-*"), *folder.glob("False-*")]]


def test_a_run_does_not_import_torch_in_the_controller(tmp_path: Path, env: dict[str, str]) -> None:
    done = run(tmp_path / "out", "--device", "cpu", *SMALL, env=env)
    assert done.ended.returncode == 0, done.ended.stderr
    assert imported_torch(tmp_path) == [False]

    made = tmp_path / "out"
    for arguments in (("report", made), ("env", made / "results.json"), ("compare", made, made)):
        assert rocmprobe(*arguments, env=env).returncode == 0
    assert imported_torch(tmp_path) == [False] * 4


@pytest.mark.thorough
@pytest.mark.parametrize(
    "command", [("detect",), *(("list", what) for what in ("settings", "problems", "gpus"))]
)
def test_the_other_commands_do_not_either(
    tmp_path: Path, env: dict[str, str], command: tuple[str, ...]
) -> None:
    assert rocmprobe(*command, env=env).returncode in (0, 3)
    assert imported_torch(tmp_path) == [False]
