"""Layers of networks that are not convolution, and code that is compiled while a program runs."""

import pytest

from rocmprobe.pytest_plugin import Request, assert_outcome

#: With and without the vendor library.
SETTINGS = ("default", "vendor-off")
HALF = ("float32", "float16")
#: PyTorch never runs float64 in MIOpen, so float64 is a control.
WITH_CONTROL = ("float32", "float16", "float64")
COMPILED = ("default", "triton-no-buffer-ops")

REQUESTS = [
    # With the backend that PyTorch chooses, then with each backend in the dtypes of all fused kernels.
    Request("attention", dtypes=("float32", "float16", "bfloat16")),
    Request("attention-math", dtypes=HALF),
    Request("attention-flash", dtypes=HALF),
    Request("attention-efficient", dtypes=HALF),
    Request("rnn", settings=SETTINGS, dtypes=WITH_CONTROL),
    Request("lstm", settings=SETTINGS, dtypes=WITH_CONTROL),
    Request("gru", settings=SETTINGS, dtypes=WITH_CONTROL),
    Request("ctc-loss", settings=SETTINGS, dtypes=("float32", "float64")),
    Request("convolution-relu", settings=SETTINGS, dtypes=HALF),
    Request("convolution-add-relu", settings=SETTINGS, dtypes=HALF),
    Request("triton", settings=COMPILED, dtypes=HALF),
    Request("inductor", settings=COMPILED, level="standard"),
]


@pytest.mark.checks(REQUESTS)
def test_machine(outcome):
    assert_outcome(outcome)
