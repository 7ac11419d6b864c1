"""Imports go down the floors only (the contracts are in pyproject.toml)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Union

import pytest
from importlinter.cli import lint_imports
from runs import CHECKOUT

from rocmprobe.text.tables import toml

ARCHITECTURE = (CHECKOUT / "docs" / "architecture.md").read_text("utf-8")


def test_every_contract_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    code = lint_imports(config_filename=str(CHECKOUT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


def test_numpy_comes_with_the_torch_extra_alone() -> None:
    """A ROCm torch that is installed keeps its numpy: torch 1.13.1 does not work with numpy 2."""
    project = toml((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    assert not [each for each in project["dependencies"] if each.startswith(("numpy", "torch"))]
    assert "numpy>=1.22" in project["optional-dependencies"]["torch"]


def test_the_picture_of_the_architecture_has_every_package_on_its_floor() -> None:
    picture = ARCHITECTURE.split("```text\n")[1].split("```")[0]
    floors = [set(re.findall(r"^│ (\w+)", floor, re.MULTILINE)) for floor in picture.split("├")]
    contracts = toml((CHECKOUT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [set(layer.split(" | ")) for layer in contracts[0]["layers"] if layer != "__main__"]
    assert floors == layers


def test_every_package_that_imports_torch_is_marked_in_the_picture() -> None:
    contracts = toml((CHECKOUT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    may_import = {re.split(r"[. ]", name)[1] for name in contracts[1]["ignore_imports"]}
    assert set(re.findall(r"^│ (\w+) \*", ARCHITECTURE, re.MULTILINE)) == may_import


def test_every_path_in_the_architecture_is_there() -> None:
    for path in re.findall(r"`([\w./]+/[\w./]*)`", ARCHITECTURE):
        places = [CHECKOUT / path, CHECKOUT / "rocmprobe" / path]
        inside = [place / path for place in (CHECKOUT / "rocmprobe").iterdir()]
        assert any(place.exists() for place in (*places, *inside)), path


def test_every_function_and_noun_in_the_architecture_is_there() -> None:
    functions = re.findall(r"`([\w/]+\.py):([\w.]+)`", ARCHITECTURE)
    nouns = [
        (path, noun) for noun, path in re.findall(r"^\| (\w+) \| `([\w/]+\.py)`", ARCHITECTURE, re.MULTILINE)
    ]
    assert len(nouns) == 10
    assert len(functions) > 10
    for path, name in (*functions, *nouns):
        assert name in _defined(ast.parse((CHECKOUT / "rocmprobe" / path).read_text("utf-8"))), (path, name)


def _defined(node: Union[ast.Module, ast.ClassDef], prefix: str = "") -> Iterator[str]:
    """Yield the functions and classes of a module, and the methods as CLASS.METHOD."""
    for child in node.body:
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            yield f"{prefix}{child.name}"
        if isinstance(child, ast.ClassDef):
            yield from _defined(child, f"{child.name}.")
