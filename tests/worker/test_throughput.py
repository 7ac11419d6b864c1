"""What is timed of a convolution, in this process on the CPU."""

import time
from dataclasses import replace
from itertools import groupby

import pytest

torch = pytest.importorskip("torch")

from asking import context  # noqa: E402

from rocmprobe.checks import timing  # noqa: E402
from rocmprobe.checks.timing import throughput  # noqa: E402
from rocmprobe.checks.tools import yardsticks  # noqa: E402
from rocmprobe.checks.tools.tensors import problem_operands, run  # noqa: E402
from rocmprobe.checks.tools.yardsticks import run_naive  # noqa: E402
from rocmprobe.model.problems import parse_problem  # noqa: E402
from rocmprobe.model.results import DIRECTIONS  # noqa: E402

TINY = "conv2d-fp32-n1-c2-i5x5-k2-f3x3-p1"


NAMES = ("fwd", "bwd_data", "bwd_weights", "fwd_bwd")


@pytest.fixture(autouse=True)
def small_yardsticks(monkeypatch):
    monkeypatch.setattr(yardsticks, "_SIDES", (16, 32))
    monkeypatch.setattr(yardsticks, "_COPIED_OF_CPU", (1 << 16, 1 << 16))
    monkeypatch.setattr(yardsticks, "_found", {})


def asked(text=TINY, direction=None, naive=False):
    return context(text, direction=direction, naive=naive, exact=False, seconds=0.0, bypass=False)


def names(timings):
    return {name.rpartition("_")[0] for name in timings if name.endswith("_repeats")}


def test_each_direction_apart_forward_with_backward_and_yardsticks():
    times = throughput(asked()).timings
    assert names(times) == {*NAMES, "gemm", "copy"}
    for name in names(times):
        assert 0 < times[f"{name}_p10"] <= times[name] <= times[f"{name}_p90"]
        assert times[f"{name}_repeats"] >= 5
    assert times["gemm_flops"] in (2 * 16**3, 2 * 32**3)
    assert times["copy_bytes"] == 2 << 16


def test_forward_alone_for_inference():
    assert names(throughput(asked(direction="fwd", naive=True)).timings) == {
        "fwd",
        "naive_fwd",
        "gemm",
        "copy",
    }


@pytest.mark.parametrize(
    ("text", "naively"),
    [
        (TINY, NAMES),
        ("conv1d-fp32-n1-c2-i5-k2-f3", ()),
        ("conv_transpose2d-fp32-n1-c2-i5x5-k2-f3x3", ()),
    ],
)
def test_naive_im2col_where_windows_can_be_unfolded(text, naively):
    times = throughput(asked(text, naive=True)).timings
    assert names(times) == {*NAMES, "gemm", "copy", *(f"naive_{name}" for name in naively)}


def test_calls_take_turns():
    order = []

    def called(name):
        return lambda: order.append(name)

    context = replace(asked(), report_phase=order.append)
    timing._measure_in_turn(context, {"a": called("a"), "b": called("b")}, {"gemm": called("gemm")}, 0)
    turns = [name for name, _ in groupby(order)]
    assert turns == ["steady", "a", "b", "yardstick", "gemm"] * 5


def test_what_convolution_takes_is_settled_before_the_first_yardstick_runs(monkeypatch):
    told = []

    def ends_the_process(context):
        raise SystemExit

    monkeypatch.setitem(yardsticks.YARDSTICKS, "gemm", ends_the_process)
    with pytest.raises(SystemExit):
        throughput(replace(asked(), report_phase=told.append, send_preliminary=told.append))
    assert told[-1] == "yardstick"
    assert names(told[-2].timings) == {*NAMES}


def test_a_copy_that_would_take_too_long_takes_no_memory(monkeypatch):
    monkeypatch.setattr(yardsticks, "_COPIED_OF_CPU", (1 << 50, 1 << 50))
    answer = throughput(asked())
    assert answer.state == "pass"
    assert answer.message.startswith("copy was not timed: a run of 1073741824 MiB would take about ")


@pytest.mark.parametrize("make", [pytest.param(None, id="cannot be made"), pytest.param(0.3, id="too slow")])
def test_a_yardstick_that_fails_costs_its_figure_alone(monkeypatch, make):
    def broken(context):
        if make is None:
            raise RuntimeError("HIP out of memory")
        return yardsticks.Yardstick(lambda: time.sleep(make), 1.0, "flops")

    def quick(context):  # a real copy is slow on a busy machine
        return yardsticks.Yardstick(lambda: None, 1.0, "bytes")

    monkeypatch.setitem(yardsticks.YARDSTICKS, "gemm", broken)
    monkeypatch.setitem(yardsticks.YARDSTICKS, "copy", quick)
    monkeypatch.setattr(timing, "LONGEST_RUN", 0.2)
    answer = throughput(asked())
    assert answer.state == "pass"
    assert answer.message.startswith("gemm was not timed: ")
    assert names(answer.timings) == {*NAMES, "copy"}


@pytest.mark.parametrize(
    "text",
    [
        "conv2d-fp32-n2-c4-i7x6-k6-f3x2-s2x1-p1x0-d1x2-g2-bias",
        "conv2d-fp32-n3-c4-i5x5-k8-f3x3-p1-g4",
        "conv2d-fp64-n1-c3-i9x9-k2-f1x1-s2",
    ],
)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_naive_im2col_computes_the_convolution(text, direction):
    problem = parse_problem(text)
    operands = problem_operands(problem, torch.float64, seed=1)
    naive = run_naive(problem, direction, operands)
    expected = run(problem, direction, operands)
    for name, value in naive.items():
        torch.testing.assert_close(value, expected[name])


def test_the_side_is_the_smallest_on_the_plateau(monkeypatch):
    seconds = {128: 1e-4, 256: 2e-4, 512: 1.55e-3, 1024: 1.2e-2}
    monkeypatch.setattr(yardsticks, "_SIDES", tuple(seconds))
    monkeypatch.setattr(yardsticks, "_least_seconds", lambda context, side: seconds[side])
    assert yardsticks._side_at_plateau(asked()) == 256


def test_no_side_whose_product_takes_long(monkeypatch):
    monkeypatch.setattr(yardsticks, "_SIDES", (128, 256, 512))
    monkeypatch.setattr(yardsticks, "_least_seconds", lambda context, side: side / 1e4)
    assert yardsticks._side_at_plateau(asked()) == 128


def test_the_last_cache_is_the_largest(tmp_path):
    for index, size in enumerate(("32K", "1024K", "32M", "nonsense")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
    assert yardsticks.last_cache_bytes(str(tmp_path)) == 32 << 20
    assert yardsticks.last_cache_bytes(str(tmp_path / "nowhere")) == 0
