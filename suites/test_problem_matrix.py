"""Is convolution right over networks, variants and geometry, with the vendor library and without it?"""

import pytest

from rocmprobe.pytest_plugin import assert_outcome

#: What is recommended most, but for what is found out by the native problems alone.
SETTINGS = ("default", "no-faulty-solvers", "vendor-off", "bypass")


@pytest.mark.check("problem-matrix", settings=SETTINGS, problems="matrix", directions=True)
def test_problem_matrix(outcome):
    assert_outcome(outcome)
