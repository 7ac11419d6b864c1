"""What is timed of a convolution, in this process on the CPU."""

from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch")

from rocmprobe.backends import BACKENDS  # noqa: E402
from rocmprobe.problems import parse_problem  # noqa: E402
from rocmprobe.worker.ask import Ask  # noqa: E402
from rocmprobe.worker.checks.timing import throughput  # noqa: E402

TINY = "conv2d-fp32-n1-c2-i5x5-k2-f3x3-p1"


def timed(text=TINY, direction=None):
    problem = parse_problem(text)
    ask = Ask(
        dtype=getattr(torch, problem.dtype), device="cpu", backend=BACKENDS["onednn"], problem=problem,
        direction=direction, under=nullcontext, report_phase=lambda phase: None, seconds=0.0, exact=False,
        bypass=False,
    )  # fmt: skip
    return throughput(ask).timings


def test_each_direction_apart_and_forward_with_backward():
    times = timed()
    for name in ("fwd", "bwd_data", "bwd_weights", "fwd_bwd"):
        assert 0 < times[f"{name}_p10"] <= times[name] <= times[f"{name}_p90"]
        assert times[f"{name}_repeats"] >= 5


def test_forward_alone_for_inference():
    assert {name for name in timed(direction="fwd") if not name.startswith("fwd")} == set()
