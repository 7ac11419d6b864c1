"""Is convolution right over networks, variants and geometry, with the vendor library and without it?"""

import pytest

from rocmprobe.pytest_plugin import hold

#: What is recommended most, but for what is found out by the native problems alone.
SETTINGS = ("default", "no-faulty-solvers", "vendor-off", "bypass")


@pytest.mark.asks("problem-matrix", settings=SETTINGS, problems="matrix", directions=True)
def test_problem_matrix(outcome):
    hold(outcome)
