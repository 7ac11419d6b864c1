"""Which layer works? Each rung stands on those below it, so the lowest that fails is to blame."""

import pytest

from rocmprobe.pytest_plugin import hold

DTYPES = ("float32", "float16", "bfloat16", "float64")
#: With the vendor library and without it: which of the two is at fault?
BOTH = ("default", "vendor-off")
#: What by-layer sends to PyTorch is asked once more under it.
LAYERS = (*BOTH, "by-layer")


@pytest.mark.asks("copy", dtypes=DTYPES)
def test_copy(outcome):
    hold(outcome)


@pytest.mark.asks("elementwise", dtypes=DTYPES)
def test_elementwise(outcome):
    hold(outcome)


@pytest.mark.asks("gemm", dtypes=DTYPES)
def test_gemm(outcome):
    hold(outcome)


@pytest.mark.asks("im2col", dtypes=DTYPES)
def test_im2col(outcome):
    hold(outcome)


@pytest.mark.asks("pooling", dtypes=("float32", "float16"))
def test_pooling(outcome):
    hold(outcome)


@pytest.mark.asks("activation", dtypes=("float32", "float16"))
def test_activation(outcome):
    hold(outcome)


@pytest.mark.asks("softmax", dtypes=("float32", "float16"))
def test_softmax(outcome):
    hold(outcome)


@pytest.mark.asks("instance-norm", dtypes=("float32", "float16"))
def test_instance_norm(outcome):
    hold(outcome)


@pytest.mark.asks("local-response-norm", dtypes=("float32", "float16"))
def test_local_response_norm(outcome):
    hold(outcome)


@pytest.mark.asks("batch-norm", settings=LAYERS, dtypes=DTYPES)
def test_batch_norm(outcome):
    hold(outcome)


@pytest.mark.asks("batch-norm-eval", settings=LAYERS, dtypes=DTYPES)
def test_batch_norm_eval(outcome):
    hold(outcome)


@pytest.mark.asks("training-step", settings=("every",))
def test_training_step(outcome):
    hold(outcome)


@pytest.mark.asks("autocast-step", settings=("every",), dtypes=("float16",))
def test_autocast_step(outcome):
    hold(outcome)


@pytest.mark.asks("autocast-step", settings=BOTH, dtypes=("bfloat16",))
def test_bfloat16_autocast_step(outcome):
    hold(outcome)


@pytest.mark.asks("all-reduce")
def test_all_reduce(outcome):
    hold(outcome)


@pytest.mark.asks("data-parallel")
def test_data_parallel(outcome):
    hold(outcome)
