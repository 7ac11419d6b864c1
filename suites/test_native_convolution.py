"""Does convolution work, and under which settings? Every direction apart."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("convolution", settings=("every",), problems="native", directions=True)
def test_convolution(outcome):
    assert_outcome(outcome)
