"""Tests of the results of kernels that are compiled while a program runs."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome

SETTINGS = ("default", "triton-no-buffer-ops")


@pytest.mark.check("triton", settings=SETTINGS, dtypes=("float32", "float16"))
def test_triton(outcome):
    assert_outcome(outcome)


@pytest.mark.check("inductor", settings=SETTINGS, level="standard")
def test_inductor(outcome):
    assert_outcome(outcome)
