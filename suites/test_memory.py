"""Tests of convolution memory: use beyond the operands, memory kept for backward, and the largest size that
fits."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("memory", settings=("default", "vendor-off", "bypass"), problems="memory")
def test_memory(outcome):
    assert_outcome(outcome)


@pytest.mark.check("memory-sweep", settings=("default", "vendor-off", "bypass"), problems="memory")
def test_memory_sweep(outcome):
    assert_outcome(outcome)
