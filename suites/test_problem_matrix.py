"""Tests of convolution over networks, variants and geometry, with and without the vendor library."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome

#: The settings recommended most often, except those that the native problems alone determine.
SETTINGS = ("default", "no-faulty-solvers", "vendor-off", "bypass")


@pytest.mark.check("problem-matrix", settings=SETTINGS, problems="matrix", directions=True)
def test_problem_matrix(outcome):
    assert_outcome(outcome)
