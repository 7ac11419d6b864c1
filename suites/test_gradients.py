"""Do derivatives through autograd agree with finite differences, first and second order?"""

import pytest

from rocmprobe.pytest_plugin import hold


@pytest.mark.asks("gradients", settings=("vendor-off", "bypass"), problems="gradients")
def test_gradients(outcome):
    hold(outcome)
