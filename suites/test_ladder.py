"""Which layer works? Each rung stands on those below it, so the lowest that fails is to blame."""

import pytest

from rocmprobe.pytest_plugin import hold


@pytest.mark.asks("copy")
def test_copy(outcome):
    hold(outcome)


@pytest.mark.asks("elementwise", dtypes=("float32", "float16"))
def test_elementwise(outcome):
    hold(outcome)


@pytest.mark.asks("gemm", dtypes=("float32", "float16"))
def test_gemm(outcome):
    hold(outcome)


@pytest.mark.asks("im2col")
def test_im2col(outcome):
    hold(outcome)


@pytest.mark.asks("batch-norm", settings=("default", "vendor-off"))
def test_batch_norm(outcome):
    hold(outcome)


@pytest.mark.asks("training-step", settings=("every",))
def test_training_step(outcome):
    hold(outcome)
