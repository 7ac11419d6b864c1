"""What else enters the vendor library: does it work there, and does it without?"""

import pytest

from rocmprobe.pytest_plugin import hold

BOTH = ("default", "vendor-off")
#: PyTorch keeps float64 from MIOpen: a control.
DTYPES = ("float32", "float16", "float64")


@pytest.mark.asks("convolution-kinds", settings=BOTH, problems="kinds", directions=True)
def test_convolution_kinds(outcome):
    hold(outcome)


@pytest.mark.asks("rnn", settings=BOTH, dtypes=DTYPES)
def test_rnn(outcome):
    hold(outcome)


@pytest.mark.asks("lstm", settings=BOTH, dtypes=DTYPES)
def test_lstm(outcome):
    hold(outcome)


@pytest.mark.asks("gru", settings=BOTH, dtypes=DTYPES)
def test_gru(outcome):
    hold(outcome)


@pytest.mark.asks("ctc-loss", settings=BOTH, dtypes=("float32", "float64"))
def test_ctc_loss(outcome):
    hold(outcome)


@pytest.mark.asks("convolution-relu", settings=BOTH, dtypes=("float32", "float16"))
def test_convolution_relu(outcome):
    hold(outcome)


@pytest.mark.asks("convolution-add-relu", settings=BOTH, dtypes=("float32", "float16"))
def test_convolution_add_relu(outcome):
    hold(outcome)
