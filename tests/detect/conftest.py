from __future__ import annotations

from pathlib import Path

import pytest
from machine_trees import Build


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return Build(tmp_path / "root")
