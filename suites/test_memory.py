"""How much memory does convolution take above its operands, and keep for backward?"""

import pytest

from rocmprobe.pytest_plugin import hold


@pytest.mark.asks("memory", settings=("default", "vendor-off", "bypass"), problems="memory")
def test_memory(outcome):
    hold(outcome)
