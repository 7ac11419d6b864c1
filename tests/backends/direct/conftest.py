"""The stand-in libraries, compiled once."""

from __future__ import annotations

import pytest
from stand_in_libraries import build


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory):
    return build(tmp_path_factory.mktemp("stand-in"))


@pytest.fixture(scope="session")
def old_stand_in(tmp_path_factory):
    """The layout of the properties before ROCm 6."""
    return build(tmp_path_factory.mktemp("old-stand-in"), "-DOLD_PROPERTIES")
