"""Does convolution work, and under which settings? Every direction apart."""

import pytest

from rocmprobe.pytest_plugin import hold


@pytest.mark.asks("convolution", settings=("every",), problems="native", directions=True)
def test_convolution(outcome):
    hold(outcome)
