"""How much memory does convolution take above its operands, what does it keep for backward, and what fits?"""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("memory", settings=("default", "vendor-off", "bypass"), problems="memory")
def test_memory(outcome):
    assert_outcome(outcome)


@pytest.mark.check("memory-sweep", settings=("default", "vendor-off", "bypass"), problems="memory")
def test_memory_sweep(outcome):
    assert_outcome(outcome)
