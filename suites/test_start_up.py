"""Tests of the cost of the first call under each setting, and of databases and caches in a new process."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("start-up", settings=("every",), problems="start-up")
def test_start_up(outcome):
    assert_outcome(outcome)
