"""What does the first call cost under each setting, and do databases and caches survive a new process?"""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("start-up", settings=("every",), problems="start-up")
def test_start_up(outcome):
    assert_outcome(outcome)
