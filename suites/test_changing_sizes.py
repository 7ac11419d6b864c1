"""What does a program pay whose input sizes keep changing?"""

import pytest

from rocmprobe.pytest_plugin import assert_outcome

#: The ways to find a solver, and the ways around it; a setting that a run lacks is not asked.
WAYS = (
    "default", "find-normal", "find-fast", "find-hybrid", "immediate", "benchmark", "vendor-off", "bypass",
    "bypass+vendor-off",
)  # fmt: skip


@pytest.mark.check("changing-sizes", settings=WAYS)
def test_changing_sizes(outcome):
    assert_outcome(outcome)
