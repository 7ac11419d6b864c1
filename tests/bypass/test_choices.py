"""Which algorithm is taken: by the model, by measurement, or from the plan file."""

import json
import os
import subprocess
import sys
import textwrap
import time
import warnings
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

from rocmprobe import bypass
from rocmprobe.bypass.choice import choices, plan_file, proof, timing


@pytest.fixture
def plans(tmp_path, monkeypatch):
    """The folder of the plan files, of a process that has measured and read nothing yet."""
    folder = tmp_path / "plans"
    monkeypatch.setenv("ROCMPROBE_BYPASS_MEASURE", "1")
    monkeypatch.setenv("ROCMPROBE_BYPASS_PLANS", str(folder))
    bypass.forget()
    yield folder
    bypass.forget()


def computed_by(calls, filters=16, **options):
    """The algorithm of each of so many calls of one problem."""
    input, weight = torch.randn(2, 16, 20, 20), torch.randn(filters, 16, 3, 3)
    found = []
    with bypass.enabled("cpu", **options):
        for _ in range(calls):
            bypass.reset_status()
            F.conv2d(input, weight, padding=1)
            found += bypass.status()["calls"]
    return found


def in_the_next_process(calls):
    bypass.forget()
    return computed_by(calls)


def records(folder):
    return [json.loads(line) for file in folder.glob("*") for line in file.read_text().split("\n") if line]


def test_the_first_call_measures_and_the_next_process_knows(plans):
    (first,) = computed_by(1)
    (record,) = records(plans)
    assert record["plan"] == first
    assert record["problem"].startswith("fwd float32")
    # A record decides the first call already, also one that no measurement would have made.
    (file,) = plans.glob("*")
    for name in ("im2col", "slow_conv2d"):
        file.write_text(json.dumps({**record, "plan": name}) + "\n")
        assert in_the_next_process(4) == [name] * 4
    assert len(records(plans)) == 1


class Changed:
    """An algorithm that calls ``after`` with each of its results."""

    def __init__(self, name, after):
        self.original, self.after, self.runs = bypass.ALGORITHMS[name], after, 0

    def __getattr__(self, name):
        return getattr(self.original, name)

    def forward(self, plan, image, weight, bias, feature):
        self.runs += 1
        self.original.forward(plan, image, weight, bias, feature)
        self.after(feature)

    def backward(self, plan, image, weight, bias, feature):
        self.runs += 1
        self.original.backward(plan, image, weight, bias, feature)
        self.after(image if plan.task.direction == "bwd-data" else weight)


def slow(result):
    time.sleep(0.1)


def without_memory(result):
    raise RuntimeError("out of memory")


def by_the_model(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("ROCMPROBE_BYPASS_MEASURE", "0")
        (name,) = in_the_next_process(1)
    bypass.forget()
    return name


def test_a_clearly_faster_plan_replaces_the_model_s_from_the_first_call_on(plans, monkeypatch):
    expected = by_the_model(monkeypatch)
    monkeypatch.setitem(bypass.ALGORITHMS, expected, Changed(expected, slow))
    found = computed_by(5)
    assert expected not in found
    # One algorithm for all of them: another one would round otherwise.
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    ("model", "other", "chosen"),
    [
        ([1.0, 1.0, 1.1], [0.9, 0.9, 0.9], 0),  # faster, but within twice the noise
        ([1.0, 1.0, 1.1], [0.7, 0.7, 0.72], 1),
        ([1.0, 1.0, 1.0], [0.5, 0.9, 0.5], 0),  # the other plan is noisy
        ([0.5, 0.5, 0.5], [0.7, 0.7, 0.7], 0),
    ],
)
def test_a_measurement_overrules_the_model_beyond_twice_its_noise(model, other, chosen):
    assert timing.fastest([model, other]) == chosen


def test_bits_stay_the_same_from_the_first_call_on(plans):
    input, weight = torch.randn(2, 16, 20, 20), torch.randn(16, 16, 3, 3)
    with bypass.enabled("cpu"):
        outputs = [F.conv2d(input, weight, padding=1) for _ in range(5)]
    assert all(torch.equal(outputs[0], other) for other in outputs[1:])


def test_a_process_measures_for_so_long_and_no_longer(plans, monkeypatch):
    """A program in which every problem is another one would measure at every call."""
    expected = by_the_model(monkeypatch)
    monkeypatch.setattr("rocmprobe.bypass.choice.choices._ALLOWANCE", -1.0)
    monkeypatch.setitem(bypass.ALGORITHMS, expected, Changed(expected, slow))
    assert len(set(computed_by(4))) == 1
    assert not plans.exists()


def test_a_plan_that_fails_while_it_is_measured_is_passed_over(plans, monkeypatch):
    first = by_the_model(monkeypatch)
    last = next(name for name in ("slow_conv2d", "im2col") if name != first)
    monkeypatch.setitem(bypass.ALGORITHMS, last, Changed(last, without_memory))
    assert last not in computed_by(3)
    # What another program may have the memory for is not decided for it.
    assert records(plans) == []


@pytest.mark.parametrize("name", ["mec", "", 3])
def test_an_algorithm_that_is_not_there_any_more_is_measured_again(plans, name):
    computed_by(1)
    (file,) = plans.glob("*")
    (record,) = records(plans)
    file.write_text(json.dumps({**record, "plan": name}) + "\n")
    with pytest.warns(UserWarning, match="without a plan for this device \\(1 of 1\\)"):
        assert set(in_the_next_process(2)) <= set(bypass.ALGORITHMS)
    assert len(records(plans)) == 2


def test_a_gpu_is_timed_by_events_and_not_by_the_host_s_clock(monkeypatch):
    order = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            order.append("record")

        def synchronize(self):
            order.append("wait")

        def elapsed_time(self, end):
            return 250.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    assert timing.seconds(torch.device("cuda", 0), lambda: order.append("call")) == 0.25
    assert order == ["record", "call", "record", "wait"]


def test_one_problem_s_plan_is_not_another_s(plans):
    computed_by(3)
    computed_by(3, filters=8)
    computed_by(3, workspace_mb=64)
    assert len({record["problem"] for record in records(plans)}) == 3


@pytest.mark.parametrize(
    "variables",
    [
        {"ROCMPROBE_BYPASS_MEASURE": "0"},
        {"ROCMPROBE_BYPASS_PLANS": "0"},
        {"ROCMPROBE_BYPASS_ALGORITHM": "slow_conv2d"},
    ],
)
def test_variables_by_which_nothing_is_kept(plans, monkeypatch, variables, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    computed_by(5)
    assert list(tmp_path.iterdir()) == []


def test_deterministic_mode_measures_nothing_and_takes_no_notice_of_what_was_measured(plans):
    torch.use_deterministic_algorithms(True)
    try:
        by_rule = in_the_next_process(5)
        assert not plans.exists()
        torch.use_deterministic_algorithms(False)
        computed_by(3)
        (file,) = plans.glob("*")
        (record,) = records(plans)
        torch.use_deterministic_algorithms(True)
        for name in ("im2col", "slow_conv2d"):
            file.write_text(json.dumps({**record, "plan": name}) + "\n")
            assert in_the_next_process(5) == by_rule
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\xff not a plan file",
        b"[]\n",
        b'{"version": 0, "device": "x", "torch": "1", "problem": "p", "plan": "im2col"}\n',
        b'{"version": 1, "dev',
        b"[" * 100_000,
    ],
)
def test_a_file_that_is_damaged_or_of_others_is_warned_of_once(plans, content):
    computed_by(3)
    (file,) = plans.glob("*")
    own = file.read_bytes()
    file.write_bytes(content)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        in_the_next_process(3)
        computed_by(3, filters=8)
    (warning,) = warned
    assert f"{file} has lines without a plan for this device (1 of 1)" in str(warning.message)
    # What can be read of a damaged file is used.
    file.write_bytes(own + content)
    with pytest.warns(UserWarning, match=r"\(1 of 2\)"):
        assert in_the_next_process(1) == [json.loads(own)["plan"].split()[0]]


def test_a_folder_that_cannot_be_written_costs_a_warning(plans):
    plans.write_text("a file, no folder")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert len(computed_by(4)) == 4
        computed_by(4, filters=8)
    (warning,) = warned
    assert str(warning.message).startswith(f"rocmprobe.bypass: {plans}")


def test_a_user_without_a_home_keeps_nothing(plans, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("ROCMPROBE_BYPASS_PLANS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert len(computed_by(4)) == 4
    assert list(tmp_path.iterdir()) == []


def test_no_warning_without_a_reason(plans):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        computed_by(4)
        in_the_next_process(4)


@pytest.mark.thorough
def test_processes_and_threads_write_at_the_same_time(plans):
    program = """
        import sys, threading
        import torch
        import torch.nn.functional as F
        from rocmprobe import bypass

        bypass.install("cpu")
        input = torch.randn(2, 16, 20, 20)

        def own(filters):
            weight = torch.randn(filters, 16, 3, 3)
            for _ in range(40):
                F.conv2d(input, weight)

        first = 1 + 4 * int(sys.argv[1])
        threads = [threading.Thread(target=own, args=(first + i,)) for i in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    running = [subprocess.Popen([*command, str(index)], env=os.environ) for index in range(3)]
    assert [process.wait(120) for process in running] == [0, 0, 0]
    problems = {record["problem"] for record in records(plans)}
    assert len(problems) == 12


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("WORKSPACE_MB", "much", "ROCMPROBE_BYPASS_WORKSPACE_MB=much: set a positive number of MiB"),
        ("WORKSPACE_MB", "-1", "ROCMPROBE_BYPASS_WORKSPACE_MB=-1: set a positive number of MiB"),
        ("ALGORITHM", "magic", "ROCMPROBE_BYPASS_ALGORITHM=magic: there are auto, pointwise"),
    ],
)
def test_variables_that_make_no_sense_are_refused(monkeypatch, name, value, said):
    monkeypatch.setenv(f"ROCMPROBE_BYPASS_{name}", value)
    for function in (lambda: bypass.install("cpu"), lambda: bypass.patch(torch.nn.Conv2d(1, 1, 1))):
        with pytest.raises(ValueError, match=said):
            function()


def test_variables_decide_what_a_caller_leaves_open(monkeypatch):
    monkeypatch.setenv("ROCMPROBE_BYPASS_ALGORITHM", "slow_conv2d")
    assert computed_by(1) == ["slow_conv2d"]
    assert computed_by(1, algorithm="im2col") == ["im2col"]
    monkeypatch.setenv("ROCMPROBE_BYPASS_WORKSPACE_MB", "0.01")
    # Only columns can be cut into pieces that small.
    assert computed_by(1) == ["im2col"]


FAULTS = {
    "doubled channel": lambda result: result[:, 0].mul_(2),
    "one wrong element": lambda result: result.view(-1)[-1].add_(1),
    "swapped channels": lambda result: result[:, :2].copy_(result[:, :2].flip(1)),
    "lost sample": lambda result: result[-1].zero_(),
    "unwritten element": lambda result: result.view(-1)[7].fill_(float("nan")),
}


@pytest.fixture
def proved(plans, monkeypatch):
    """Plans on the CPU must prove themselves, as on a GPU."""
    monkeypatch.setattr(proof, "DEVICE_TYPES", {"cpu"})
    monkeypatch.setenv("ROCMPROBE_BYPASS_MEASURE", "0")
    return plans


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("direction", ["fwd", "bwd-data", "bwd-weights"])
def test_a_plan_with_a_fault_is_refused_and_the_next_one_is_exact(proved, monkeypatch, fault, direction):
    image, weight = (torch.randn(shape, requires_grad=True) for shape in ((2, 6, 9, 8), (6, 6, 3, 3)))

    def result():
        if direction == "fwd":
            return F.conv2d(image, weight, stride=2).detach()
        leaf = image if direction == "bwd-data" else weight
        return torch.autograd.grad(F.conv2d(image, weight, stride=2).square().sum(), leaf)[0]

    expected = result()
    faulty = Changed("slow_conv2d", FAULTS[fault])
    monkeypatch.setitem(bypass.ALGORITHMS, "slow_conv2d", faulty)
    for _ in range(2):
        bypass.reset_status()
        with bypass.enabled("cpu", algorithm="im2col" if direction != "fwd" else "auto"):
            F.conv2d(image, weight, stride=2)
        with bypass.enabled("cpu"):
            torch.testing.assert_close(result(), expected, rtol=1e-4, atol=1e-4)
        status = bypass.status()
        assert status["calls"].keys() == {"im2col"}
        assert all("integers are wrong" in message for message in status["inexact"].values())
        assert all(name.startswith("slow_conv2d: ") for name in status["inexact"])
        bypass.forget()
    # The second process read the results of the proofs.
    assert faulty.runs == len({record["problem"] for record in records(proved) if record.get("fault")})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
def test_exact_plans_pass_their_proof(proved, dtype, transposed, groups):
    convolve = F.conv_transpose2d if transposed else F.conv2d
    extra = {"output_padding": 1} if transposed else {}
    shapes = (2, 6, 12, 11), (6, 6 // groups, 3, 3), (6,)
    image, weight, bias = (torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)
    with bypass.enabled("cpu"):
        convolve(image, weight, bias, stride=2, padding=1, groups=groups, **extra).sum().backward()
        F.conv1d(image[..., 0], weight[..., 0], groups=1) if groups == 1 else None
    assert bypass.status()["inexact"] == {}
    assert [record["fault"] for record in records(proved)] == [""] * len(records(proved))


def test_no_exact_plan_and_no_proof_during_capture_are_errors(proved, monkeypatch):
    monkeypatch.setattr(choices, "capturing", lambda device: True)
    with pytest.raises(RuntimeError, match="in a captured graph was not computed before"):
        computed_by(1)
    monkeypatch.setattr(choices, "capturing", lambda device: False)
    (name,) = in_the_next_process(1)
    monkeypatch.setattr(choices, "capturing", lambda device: True)
    assert in_the_next_process(1) == [name]
    monkeypatch.setattr(choices, "capturing", lambda device: False)
    for each in ("im2col", "slow_conv2d"):
        monkeypatch.setitem(bypass.ALGORITHMS, each, Changed(each, FAULTS["doubled channel"]))
    with pytest.raises(RuntimeError, match=r"no algorithm is exact for fwd float32 .* on cpu"):
        computed_by(1, filters=8)
    assert plan_file.inexact() == bypass.status()["inexact"]
