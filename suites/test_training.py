"""Training of real networks: its results, its speed, and its repeatability over minutes of load."""

import pytest

from rocmprobe.pytest_plugin import Request, assert_outcome

NETWORKS = ("train-resnet", "train-detector", "train-unet", "train-lstm", "train-depthwise")
#: Settings that can be recommended. Settings that a machine lacks are skipped.
CANDIDATES = ("default", "no-faulty-solvers", "vendor-off", "bypass", "bypass+vendor-off", "cpu")

REQUESTS = [
    *(
        Request(network, settings=CANDIDATES, dtypes=("float32", "float16"), level="standard")
        for network in NETWORKS
    ),
    # Two settings show if bfloat16 works. It decides no recommendation, so the others would only take time.
    *(
        Request(network, settings=("default", "bypass"), dtypes=("bfloat16",), level="standard")
        for network in NETWORKS
    ),
    Request("soak", settings=("default", "vendor-off", "bypass"), level="long"),
]


@pytest.mark.checks(REQUESTS)
def test_machine(outcome):
    assert_outcome(outcome)
