"""The ladder of layers. Each rung depends on the rungs below, so the lowest failing rung is at fault."""

import pytest

from rocmprobe.pytest_plugin import Request, assert_outcome

FLOATS = ("float32", "float16", "bfloat16", "float64")
#: With and without the vendor library, to find which side is at fault.
BOTH = ("default", "vendor-off")
#: Operators that never use the vendor library. If they fail, the fault is below it.
CONTROLS = (
    "pooling", "activation", "softmax", "instance-norm", "local-response-norm", "selection", "sorting",
    "scans", "scatter-and-gather", "reductions", "embedding", "padding", "norms", "resizing",
    "grid-sampling", "prelu", "global-pooling", "losses", "dropout",
)  # fmt: skip

REQUESTS = [
    Request("copy", dtypes=FLOATS),
    Request("repeated"),
    Request("elementwise", dtypes=FLOATS),
    Request("gemm", dtypes=FLOATS),
    # If these fail, the same product without hipBLASLt shows which library is at fault.
    Request("matmul", settings=("default", "no-hipblaslt"), dtypes=("float16", "bfloat16")),
    Request("int-matmul", settings=("default", "no-hipblaslt"), dtypes=("int8",)),
    Request("kernel", dtypes=("float32", "float16", "bfloat16")),
    Request("im2col", dtypes=FLOATS),
    *(Request(control, dtypes=("float32", "float16")) for control in CONTROLS),
    # The libraries without PyTorch.
    Request("rocblas-direct", dtypes=FLOATS),
    Request("miopen-direct", problems="native", directions=True),
    Request("batch-norm", settings=BOTH, dtypes=FLOATS),
    Request("batch-norm-eval", settings=BOTH, dtypes=FLOATS),
    Request("training-step", settings=("every",)),
    Request("autocast-step", settings=("every",), dtypes=("float16",)),
    Request("autocast-step", settings=BOTH, dtypes=("bfloat16",)),
    Request("channels-last-step", settings=(*BOTH, "bypass")),
    Request("data-loader"),
    Request("data-loader-spawn", if_failed="data-loader"),
]


@pytest.mark.checks(REQUESTS)
def test_machine(outcome):
    assert_outcome(outcome)
