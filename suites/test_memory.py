"""How much memory does convolution take above its operands, what does it keep for backward, and what fits?"""

import pytest

from rocmprobe.pytest_plugin import hold


@pytest.mark.asks("memory", settings=("default", "vendor-off", "bypass"), problems="memory")
def test_memory(outcome):
    hold(outcome)


@pytest.mark.asks("memory-sweep", settings=("default", "vendor-off", "bypass"), problems="memory")
def test_memory_sweep(outcome):
    hold(outcome)
