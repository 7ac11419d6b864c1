"""Tests of scaled dot product attention, with each of PyTorch's backends."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome

DTYPES = ("float32", "float16", "bfloat16")
#: Half precision that all fused kernels support.
BY_BACKEND = ("float32", "float16")


@pytest.mark.check("attention", dtypes=DTYPES)
def test_attention(outcome):
    assert_outcome(outcome)


@pytest.mark.check("attention-math", dtypes=BY_BACKEND)
def test_math(outcome):
    assert_outcome(outcome)


@pytest.mark.check("attention-flash", dtypes=BY_BACKEND)
def test_flash(outcome):
    assert_outcome(outcome)


@pytest.mark.check("attention-efficient", dtypes=BY_BACKEND)
def test_efficient(outcome):
    assert_outcome(outcome)
