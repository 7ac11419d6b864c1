"""Do real networks train right, in float32 and under autocast, and how fast?"""

import pytest

from rocmprobe.pytest_plugin import hold

#: Those that a recommendation may come down to; a setting that a machine lacks is not asked.
CANDIDATES = ("default", "no-faulty-solvers", "by-layer", "vendor-off", "bypass", "bypass+vendor-off", "cpu")
FEW = ("default", "bypass")
DTYPES = ("float32", "float16")


@pytest.mark.asks("train-resnet", settings=CANDIDATES, dtypes=DTYPES, level="standard")
def test_resnet(outcome):
    hold(outcome)


@pytest.mark.asks("train-resnet", settings=FEW, dtypes=("bfloat16",), level="standard")
def test_bfloat16_resnet(outcome):
    hold(outcome)


@pytest.mark.asks("train-detector", settings=CANDIDATES, dtypes=DTYPES, level="standard")
def test_detector(outcome):
    hold(outcome)


@pytest.mark.asks("train-detector", settings=FEW, dtypes=("bfloat16",), level="standard")
def test_bfloat16_detector(outcome):
    hold(outcome)


@pytest.mark.asks("train-unet", settings=CANDIDATES, dtypes=DTYPES, level="standard")
def test_unet(outcome):
    hold(outcome)


@pytest.mark.asks("train-unet", settings=FEW, dtypes=("bfloat16",), level="standard")
def test_bfloat16_unet(outcome):
    hold(outcome)


@pytest.mark.asks("train-lstm", settings=CANDIDATES, dtypes=DTYPES, level="standard")
def test_lstm(outcome):
    hold(outcome)


@pytest.mark.asks("train-lstm", settings=FEW, dtypes=("bfloat16",), level="standard")
def test_bfloat16_lstm(outcome):
    hold(outcome)


@pytest.mark.asks("train-depthwise", settings=CANDIDATES, dtypes=DTYPES, level="standard")
def test_depthwise(outcome):
    hold(outcome)


@pytest.mark.asks("train-depthwise", settings=FEW, dtypes=("bfloat16",), level="standard")
def test_bfloat16_depthwise(outcome):
    hold(outcome)
