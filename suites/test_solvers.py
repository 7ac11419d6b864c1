"""Which of MIOpen's solvers is at fault? Each runs alone, where default fails or all settings are asked."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("solver", settings=("forced",), problems="native", directions=True)
def test_solver(outcome):
    assert_outcome(outcome)
