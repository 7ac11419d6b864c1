"""Tests of other operations that use the vendor library, with and without it."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome

BOTH = ("default", "vendor-off")
#: Layers that by-layer moves to PyTorch are also tested under that setting.
LAYERS = (*BOTH, "by-layer")
#: Includes float64 as a control, because PyTorch never runs float64 in MIOpen.
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
