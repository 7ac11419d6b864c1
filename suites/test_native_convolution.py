"""Tests of convolution under every setting, for each direction separately."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("convolution", settings=("every",), problems="native", directions=True)
def test_convolution(outcome):
    assert_outcome(outcome)
