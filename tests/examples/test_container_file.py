"""The container file: what it says, and by hadolint and buildah where they are installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "container" / "Containerfile"
TEXT = FILE.read_text("utf-8")


def steps(instruction: str) -> list[str]:
    return re.findall(rf"^{instruction} (.*)$", TEXT.replace("\\\n", " "), re.MULTILINE)


def test_the_base_can_be_chosen_and_the_user_is_not_root() -> None:
    assert [each.partition("=")[0] for each in steps("ARG")] == ["BASE"]
    assert {each.split()[0] for each in steps("FROM")} == {"${BASE}"}
    user, group = steps("USER")[-1].split(":")
    assert int(user) > 0
    assert int(group) > 0


def test_what_is_copied_is_what_the_wheel_is_made_of() -> None:
    *sources, _ = " ".join(steps("COPY")).replace("/source/rocmprobe", "").split()
    copied = {each for each in sources if not each.startswith("/")}
    assert copied == {"pyproject.toml", "README.md", "LICENSE", "rocmprobe", "suites"}
    assert all((ROOT / each).exists() for each in copied)


def test_no_secret_has_a_place_in_it_and_nothing_but_the_results_is_a_volume() -> None:
    named = {each.partition("=")[0] for each in " ".join(steps("ENV")).split()}
    assert named == {"HOME", "PYTHONDONTWRITEBYTECODE"}
    assert "type=secret" not in TEXT
    assert steps("VOLUME") == steps("WORKDIR") == ["/results"]


@pytest.mark.skipif(not shutil.which("hadolint"), reason="hadolint is not installed")
def test_hadolint_finds_nothing() -> None:
    ended = subprocess.run(["hadolint", FILE], text=True, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")
