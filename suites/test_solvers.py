"""Which of MIOpen's solvers is at fault? Each runs alone, where default fails or all settings are asked."""

import pytest

from rocmprobe.pytest_plugin import hold


@pytest.mark.asks("solver", settings=("forced",), problems="native", directions=True)
def test_solver(outcome):
    hold(outcome)
