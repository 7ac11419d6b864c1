"""Are PyTorch's own operators correct, each for the samples that the installed torch has for it?"""

import pytest

from rocmprobe.pytest_plugin import assert_outcome


@pytest.mark.check("operator", dtypes=("float32", "float16", "bfloat16"), operators=True, level="standard")
def test_operator(outcome):
    assert_outcome(outcome)
