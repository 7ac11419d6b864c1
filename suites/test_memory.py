"""Tests of convolution memory: use beyond the operands, and memory kept for backward."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("memory", settings=("default", "vendor-off", "bypass"), problems="memory")
def test_memory(outcome):
    assert_outcome(outcome)
