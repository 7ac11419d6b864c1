"""Tests of the cost of input sizes that keep changing."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome

#: Ways to find a solver, and ways that need no solver. Settings that a run lacks are skipped.
WAYS = (
    "default", "find-normal", "find-fast", "find-hybrid", "immediate", "benchmark", "vendor-off", "bypass",
    "bypass+vendor-off",
)  # fmt: skip


@pytest.mark.check("changing-sizes", settings=WAYS)
def test_changing_sizes(outcome):
    assert_outcome(outcome)
