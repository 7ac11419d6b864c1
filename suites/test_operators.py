"""Tests of PyTorch's own operators, with the samples of the installed torch for each operator."""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("operator", dtypes=("float32", "float16", "bfloat16"), operators=True, level="standard")
def test_operator(outcome):
    assert_outcome(outcome)
