"""Imports go down the floors only (the contracts are in pyproject.toml)."""

from __future__ import annotations

import re

import pytest
from importlinter.cli import lint_imports
from runs import CHECKOUT

from rocmprobe.text.tables import toml


def test_every_contract_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    code = lint_imports(config_filename=str(CHECKOUT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


def test_numpy_comes_with_the_torch_extra_alone() -> None:
    """A ROCm torch that is installed keeps its numpy: torch 1.13.1 does not work with numpy 2."""
    project = toml((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    assert not [each for each in project["dependencies"] if each.startswith(("numpy", "torch"))]
    assert "numpy>=1.22" in project["optional-dependencies"]["torch"]


def test_the_table_of_the_architecture_has_every_package_on_its_floor() -> None:
    text = (CHECKOUT / "docs" / "architecture.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", text, re.MULTILINE)
    contracts = toml((CHECKOUT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    floors = contracts["contracts"][0]["layers"]
    expected = [
        (str(number), name)
        for number, floor in enumerate(each for each in floors if each != "__main__")
        for name in floor.split(" | ")
    ]
    assert sorted(rows) == sorted((str(int(number) + 1), name) for number, name in expected)


def test_every_path_in_the_architecture_is_there() -> None:
    text = (CHECKOUT / "docs" / "architecture.md").read_text("utf-8")
    for path in re.findall(r"`([\w./]+/[\w./]*)`", text):
        places = [CHECKOUT / path, CHECKOUT / "rocmprobe" / path]
        inside = [place / path for place in (CHECKOUT / "rocmprobe").iterdir()]
        assert any(place.exists() for place in (*places, *inside)), path
