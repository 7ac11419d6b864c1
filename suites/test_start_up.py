"""What does the first call cost under each setting, and do databases and caches survive a new process?"""

import pytest

from rocmprobe.pytest_plugin import hold


@pytest.mark.asks("start-up", settings=("every",), problems="start-up")
def test_start_up(outcome):
    hold(outcome)
