"""What else enters the vendor library: does it work there, and does it without?"""

import pytest

from rocmprobe.pytest_plugin import assert_outcome

BOTH = ("default", "vendor-off")
#: What by-layer sends to PyTorch is asked once more under it.
LAYERS = (*BOTH, "by-layer")
#: PyTorch keeps float64 from MIOpen: a control.
DTYPES = ("float32", "float16", "float64")


@pytest.mark.check("convolution-kinds", settings=BOTH, problems="kinds", directions=True)
def test_convolution_kinds(outcome):
    assert_outcome(outcome)


@pytest.mark.check("rnn", settings=LAYERS, dtypes=DTYPES)
def test_rnn(outcome):
    assert_outcome(outcome)


@pytest.mark.check("lstm", settings=LAYERS, dtypes=DTYPES)
def test_lstm(outcome):
    assert_outcome(outcome)


@pytest.mark.check("gru", settings=LAYERS, dtypes=DTYPES)
def test_gru(outcome):
    assert_outcome(outcome)


@pytest.mark.check("ctc-loss", settings=LAYERS, dtypes=("float32", "float64"))
def test_ctc_loss(outcome):
    assert_outcome(outcome)


@pytest.mark.check("convolution-relu", settings=LAYERS, dtypes=("float32", "float16"))
def test_convolution_relu(outcome):
    assert_outcome(outcome)


@pytest.mark.check("convolution-add-relu", settings=LAYERS, dtypes=("float32", "float16"))
def test_convolution_add_relu(outcome):
    assert_outcome(outcome)
