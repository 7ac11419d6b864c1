"""Tests of training real networks: correctness and speed, in float32 and under autocast."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome

#: Settings that can be recommended. Settings that a machine lacks are skipped.
CANDIDATES = ("default", "no-faulty-solvers", "by-layer", "vendor-off", "bypass", "bypass+vendor-off", "cpu")
FEW = ("default", "bypass")
DTYPES = ("float32", "float16")


@pytest.mark.check("train-resnet", settings=CANDIDATES, dtypes=DTYPES, level="standard")
def test_resnet(outcome):
    assert_outcome(outcome)


@pytest.mark.check("train-resnet", settings=FEW, dtypes=("bfloat16",), level="standard")
def test_bfloat16_resnet(outcome):
    assert_outcome(outcome)


@pytest.mark.check("train-detector", settings=CANDIDATES, dtypes=DTYPES, level="standard")
def test_detector(outcome):
    assert_outcome(outcome)


@pytest.mark.check("train-detector", settings=FEW, dtypes=("bfloat16",), level="standard")
def test_bfloat16_detector(outcome):
    assert_outcome(outcome)


@pytest.mark.check("train-unet", settings=CANDIDATES, dtypes=DTYPES, level="standard")
def test_unet(outcome):
    assert_outcome(outcome)


@pytest.mark.check("train-unet", settings=FEW, dtypes=("bfloat16",), level="standard")
def test_bfloat16_unet(outcome):
    assert_outcome(outcome)


@pytest.mark.check("train-lstm", settings=CANDIDATES, dtypes=DTYPES, level="standard")
def test_lstm(outcome):
    assert_outcome(outcome)


@pytest.mark.check("train-lstm", settings=FEW, dtypes=("bfloat16",), level="standard")
def test_bfloat16_lstm(outcome):
    assert_outcome(outcome)


@pytest.mark.check("train-depthwise", settings=CANDIDATES, dtypes=DTYPES, level="standard")
def test_depthwise(outcome):
    assert_outcome(outcome)


@pytest.mark.check("train-depthwise", settings=FEW, dtypes=("bfloat16",), level="standard")
def test_bfloat16_depthwise(outcome):
    assert_outcome(outcome)
