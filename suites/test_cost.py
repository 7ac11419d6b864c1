"""The cost of convolution under each setting: new input sizes, memory, the first call, speed."""

import pytest

from rocmprobe.pytest_plugin import Request, assert_outcome

#: Settings that find a solver in different ways, and settings that need no solver.
WAYS = (
    "default", "find-normal", "find-fast", "find-hybrid", "immediate", "benchmark", "vendor-off", "bypass",
    "bypass+vendor-off",
)  # fmt: skip

REQUESTS = [
    Request("changing-sizes", settings=WAYS),
    Request("memory", settings=("default", "vendor-off", "bypass"), problems="memory"),
    Request("start-up", settings=("every",), problems="start-up"),
    Request("throughput", settings=("every",), problems="throughput"),
]


@pytest.mark.checks(REQUESTS)
def test_machine(outcome):
    assert_outcome(outcome)
