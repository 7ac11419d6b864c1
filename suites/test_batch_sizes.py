"""Tests of training speed by batch size, up to the largest batch that fits."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome

FEW = ("default", "bypass")


@pytest.mark.check("batch-sizes", settings=FEW, dtypes=("float32", "float16"), level="standard")
def test_batch_sizes(outcome):
    assert_outcome(outcome)
