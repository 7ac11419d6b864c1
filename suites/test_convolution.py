"""Convolution: its results in each direction, its gradients, and MIOpen's solvers one by one."""

import pytest

from rocmprobe.pytest_plugin import Request, assert_outcome

REQUESTS = [
    # These come first, because settings run in the order of the requests: the settings that are recommended
    # most often run before the others.
    Request("gradients", settings=("vendor-off", "bypass"), problems="gradients"),
    Request("gradient-flow", settings=("default", "vendor-off", "bypass"), problems="gradient-flow"),
    Request("convolution", settings=("every",), problems="native", directions=True),
    Request(
        "convolution-at-size",
        settings=("default", "no-faulty-solvers", "vendor-off", "bypass"),
        problems="sizes",
        directions=True,
    ),
    # Without the settings that the native problems alone determine.
    Request(
        "problem-matrix",
        settings=("default", "no-faulty-solvers", "vendor-off", "bypass"),
        problems="matrix",
        directions=True,
    ),
    Request("convolution-kinds", settings=("default", "vendor-off"), problems="kinds", directions=True),
    # The solvers run if default fails or if all settings are requested.
    Request("solver", settings=("forced",), problems="native", directions=True),
]


@pytest.mark.checks(REQUESTS)
def test_machine(outcome):
    assert_outcome(outcome)
