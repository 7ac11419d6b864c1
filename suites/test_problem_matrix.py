"""Is convolution right over networks, variants and geometry, with the vendor library and without it?"""

import pytest

from rocmprobe.pytest_plugin import hold


@pytest.mark.asks(
    "problem-matrix", settings=("default", "vendor-off", "bypass"), problems="matrix", directions=True
)
def test_problem_matrix(outcome):
    hold(outcome)
