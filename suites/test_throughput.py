"""Tests of convolution speed under each setting, forward and with backward."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("throughput", settings=("every",), problems="throughput")
def test_throughput(outcome):
    assert_outcome(outcome)
