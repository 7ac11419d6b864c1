"""Test of repeatable results over minutes of load, at the end of a run of level long."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("soak", settings=("default", "vendor-off", "bypass"), level="long")
def test_soak(outcome):
    assert_outcome(outcome)
