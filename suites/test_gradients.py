"""Tests of gradients: first and second order against finite differences, and against fp64 in every way in
which training requests gradients."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("gradients", settings=("vendor-off", "bypass"), problems="gradients")
def test_gradients(outcome):
    assert_outcome(outcome)


@pytest.mark.check("gradient-flow", settings=("default", "vendor-off", "bypass"), problems="gradient-flow")
def test_gradient_flow(outcome):
    assert_outcome(outcome)
