"""Tests of MIOpen's solvers one by one. They run if default fails or if all settings are requested."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("solver", settings=("forced",), problems="native", directions=True)
def test_solver(outcome):
    assert_outcome(outcome)
