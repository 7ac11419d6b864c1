"""The stand-in libraries, compiled once."""

from __future__ import annotations

import pytest
from stand_in_libraries import build


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory):
    return build(tmp_path_factory.mktemp("stand-in"))


@pytest.fixture(scope="session")
def old_stand_in(tmp_path_factory):
    """No Find 2.0 and the old properties, as before ROCm 5.4; no immediate mode."""
    flags = ("-DOLD_PROPERTIES", "-DWITHOUT_FIND2", "-DWITHOUT_IMMEDIATE")
    return build(tmp_path_factory.mktemp("old-stand-in"), *flags)
