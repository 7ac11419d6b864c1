"""Imports go down the floors only (the contracts are in pyproject.toml)."""

from __future__ import annotations

import pytest
from importlinter.cli import lint_imports
from runs import CHECKOUT


def test_every_contract_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    code = lint_imports(config_filename=str(CHECKOUT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out
