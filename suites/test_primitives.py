"""What else enters the vendor library: does it work there, and does it without?"""

import pytest

from rocmprobe.pytest_plugin import hold

BOTH = ("default", "vendor-off")
#: What by-layer sends to PyTorch is asked once more under it.
LAYERS = (*BOTH, "by-layer")
#: PyTorch keeps float64 from MIOpen: a control.
DTYPES = ("float32", "float16", "float64")


@pytest.mark.asks("convolution-kinds", settings=BOTH, problems="kinds", directions=True)
def test_convolution_kinds(outcome):
    hold(outcome)


@pytest.mark.asks("rnn", settings=LAYERS, dtypes=DTYPES)
def test_rnn(outcome):
    hold(outcome)


@pytest.mark.asks("lstm", settings=LAYERS, dtypes=DTYPES)
def test_lstm(outcome):
    hold(outcome)


@pytest.mark.asks("gru", settings=LAYERS, dtypes=DTYPES)
def test_gru(outcome):
    hold(outcome)


@pytest.mark.asks("ctc-loss", settings=LAYERS, dtypes=("float32", "float64"))
def test_ctc_loss(outcome):
    hold(outcome)


@pytest.mark.asks("convolution-relu", settings=LAYERS, dtypes=("float32", "float16"))
def test_convolution_relu(outcome):
    hold(outcome)


@pytest.mark.asks("convolution-add-relu", settings=LAYERS, dtypes=("float32", "float16"))
def test_convolution_add_relu(outcome):
    hold(outcome)
