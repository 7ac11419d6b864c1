"""Is the bypass right over the kinds and corners of geometry?"""

import pytest

from rocmprobe.pytest_plugin import hold


@pytest.mark.asks("convolution", settings=("bypass",), problems="bypass", directions=True)
def test_bypass_convolution(outcome):
    hold(outcome)
