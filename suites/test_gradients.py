"""Do gradients agree with finite differences, first and second order, and with fp64 in every way in which
training asks for them?"""

import pytest

from rocmprobe.pytest_plugin import hold


@pytest.mark.asks("gradients", settings=("vendor-off", "bypass"), problems="gradients")
def test_gradients(outcome):
    hold(outcome)


@pytest.mark.asks("gradient-flow", settings=("default", "vendor-off", "bypass"), problems="gradient-flow")
def test_gradient_flow(outcome):
    hold(outcome)
