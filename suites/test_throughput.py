"""How fast is convolution under each setting, forward and with backward?"""

import pytest

from rocmprobe.pytest_plugin import hold


@pytest.mark.asks("throughput", settings=("every",), problems="throughput")
def test_throughput(outcome):
    hold(outcome)
