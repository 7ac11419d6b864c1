"""The ladder of layers. Each rung depends on the rungs below, so the lowest failing rung is at fault."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome

DTYPES = ("float32", "float16", "bfloat16", "float64")
#: With and without the vendor library, to find which side is at fault.
BOTH = ("default", "vendor-off")
#: Layers that by-layer moves to PyTorch are also tested under that setting.
LAYERS = (*BOTH, "by-layer")


@pytest.mark.check("copy", dtypes=DTYPES)
def test_copy(outcome):
    assert_outcome(outcome)


@pytest.mark.check("elementwise", dtypes=DTYPES)
def test_elementwise(outcome):
    assert_outcome(outcome)


@pytest.mark.check("gemm", dtypes=DTYPES)
def test_gemm(outcome):
    assert_outcome(outcome)


@pytest.mark.check("matmul", settings=("default", "no-hipblaslt"), dtypes=("float16", "bfloat16"))
def test_matmul(outcome):
    assert_outcome(outcome)


@pytest.mark.check("int-matmul", settings=("default", "no-hipblaslt"), dtypes=("int8",))
def test_int_matmul(outcome):
    assert_outcome(outcome)


@pytest.mark.check("kernel", dtypes=("float32", "float16", "bfloat16"))
def test_kernel(outcome):
    assert_outcome(outcome)


@pytest.mark.check("im2col", dtypes=DTYPES)
def test_im2col(outcome):
    assert_outcome(outcome)


@pytest.mark.check("pooling", dtypes=("float32", "float16"))
def test_pooling(outcome):
    assert_outcome(outcome)


@pytest.mark.check("activation", dtypes=("float32", "float16"))
def test_activation(outcome):
    assert_outcome(outcome)


@pytest.mark.check("softmax", dtypes=("float32", "float16"))
def test_softmax(outcome):
    assert_outcome(outcome)


@pytest.mark.check("instance-norm", dtypes=("float32", "float16"))
def test_instance_norm(outcome):
    assert_outcome(outcome)


@pytest.mark.check("local-response-norm", dtypes=("float32", "float16"))
def test_local_response_norm(outcome):
    assert_outcome(outcome)


@pytest.mark.check("selection", dtypes=("float32", "float16"))
def test_selection(outcome):
    assert_outcome(outcome)


@pytest.mark.check("sorting", dtypes=("float32", "float16"))
def test_sorting(outcome):
    assert_outcome(outcome)


@pytest.mark.check("scans", dtypes=("float32", "float16"))
def test_scans(outcome):
    assert_outcome(outcome)


@pytest.mark.check("scatter-and-gather", dtypes=("float32", "float16"))
def test_scatter_and_gather(outcome):
    assert_outcome(outcome)


@pytest.mark.check("reductions", dtypes=("float32", "float16"))
def test_reductions(outcome):
    assert_outcome(outcome)


@pytest.mark.check("embedding", dtypes=("float32", "float16"))
def test_embedding(outcome):
    assert_outcome(outcome)


@pytest.mark.check("padding", dtypes=("float32", "float16"))
def test_padding(outcome):
    assert_outcome(outcome)


@pytest.mark.check("norms", dtypes=("float32", "float16"))
def test_norms(outcome):
    assert_outcome(outcome)


@pytest.mark.check("resizing", dtypes=("float32", "float16"))
def test_resizing(outcome):
    assert_outcome(outcome)


@pytest.mark.check("grid-sampling", dtypes=("float32", "float16"))
def test_grid_sampling(outcome):
    assert_outcome(outcome)


@pytest.mark.check("prelu", dtypes=("float32", "float16"))
def test_prelu(outcome):
    assert_outcome(outcome)


@pytest.mark.check("global-pooling", dtypes=("float32", "float16"))
def test_global_pooling(outcome):
    assert_outcome(outcome)


@pytest.mark.check("losses", dtypes=("float32", "float16"))
def test_losses(outcome):
    assert_outcome(outcome)


@pytest.mark.check("dropout", dtypes=("float32", "float16"))
def test_dropout(outcome):
    assert_outcome(outcome)


@pytest.mark.check("rocblas-direct", dtypes=DTYPES)
def test_rocblas_direct(outcome):
    assert_outcome(outcome)


@pytest.mark.check("miopen-direct", problems="native", directions=True)
def test_miopen_direct(outcome):
    assert_outcome(outcome)


@pytest.mark.check("batch-norm", settings=LAYERS, dtypes=DTYPES)
def test_batch_norm(outcome):
    assert_outcome(outcome)


@pytest.mark.check("batch-norm-eval", settings=LAYERS, dtypes=DTYPES)
def test_batch_norm_eval(outcome):
    assert_outcome(outcome)


@pytest.mark.check("training-step", settings=("every",))
def test_training_step(outcome):
    assert_outcome(outcome)


@pytest.mark.check("autocast-step", settings=("every",), dtypes=("float16",))
def test_autocast_step(outcome):
    assert_outcome(outcome)


@pytest.mark.check("autocast-step", settings=BOTH, dtypes=("bfloat16",))
def test_bfloat16_autocast_step(outcome):
    assert_outcome(outcome)


@pytest.mark.check("channels-last-step", settings=(*BOTH, "bypass"))
def test_channels_last_step(outcome):
    assert_outcome(outcome)
