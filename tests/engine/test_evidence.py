"""Outcomes from the replies of workers, how a child ended, and which lines stand for its failure."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from runs import CHECKOUT

from rocmprobe.backends import BACKENDS, Miopen
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.engine.conversation import Reply
from rocmprobe.engine.evidence import crash_cause, evidence_of, killed_for_memory, oom_kills
from rocmprobe.engine.outcome import outcome_of
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.results import CRASHES, FAILURES, Outcome

#: What MIOpen prints in one try of a kernel that the compiler refuses, with the names of that try.
TRY = """\
MIOpen(HIP): Info [Measure] Db::FindRecord time: 0.0{number}
/tmp/comgr-{name}/input/MIOpenBatchNormFwdTrainSpatial.cl:732:23: error: not a valid operand.
MIOpen(HIP): Error [BuildOcl] comgr status = ERROR (1), source file: MIOpenBatchNormFwdTrainSpatial.cl
MIOpen Error: /src/hipoc_program.cpp:300: Code object build failed. Source: MIOpenBatchNormFwdTrainSpatial.cl
[rocmprobe] miopenBatchNormalizationForwardTraining: miopenStatusUnknownError (7)
"""


def kept(log: str) -> list[str]:
    return evidence_of(log, Miopen().read(log), ())


def test_the_compiler_s_error_comes_first_and_each_line_once() -> None:
    names = ("2f1a", "90cc", "77de")
    lines = kept("".join(TRY.format(name=name, number=number) for number, name in enumerate(names)))
    assert lines[0].startswith("/tmp/comgr-2f1a/input/")
    assert lines[0].endswith("error: not a valid operand.")
    assert lines[1].startswith("MIOpen Error: ")
    # The call that failed is named by the message.
    assert len(lines) == len(TRY.splitlines()) - 1


def test_a_line_for_each_try_leaves_room_for_what_else_went_wrong() -> None:
    again = "MIOpen Error: /MIOpen/src/hipoc/hipoc_program.cpp:257: Cant find file: /tmp/miopen-x-{}/x.cl.o\n"
    log = "".join(again.format(f"{number:04x}") for number in range(40))
    lines = kept(f"{log}sh: 1: /usr/lib/clang-21: not found\n")
    assert lines[0] == "sh: 1: /usr/lib/clang-21: not found"
    assert sum("Cant find file" in line for line in lines) == 1


@pytest.mark.parametrize(
    "said", ["sh: line 1: /opt/clang-21: No such file or directory", "sh: 1: /opt/clang-21: not found"]
)
def test_a_compiler_that_is_not_there_is_told_by_any_shell(said: str) -> None:
    left = "MIOpen Error: /src/hipoc_program.cpp:257: Cant find file: /tmp/miopen-x-aa01/x.cl.o"
    assert kept(f"{left}\n{said}")[:2] == [said, left]


def test_the_frames_of_a_stack_stay_in_their_order() -> None:
    frames = [f'  File "/x.py", line {number} in {name}' for number, name in ((9, "inner"), (3, "outer"))]
    lines = kept("\n".join(("Fatal Python error: Segmentation fault", "Current thread 0x7f:", *frames)))
    assert lines == ["Fatal Python error: Segmentation fault", "Current thread 0x7f:", *frames]


@pytest.mark.parametrize(
    ("status", "oom_killed", "cause"),
    [
        *((name, None, name) for name in CRASHES if name.startswith("SIG")),
        ("SIGKILL", False, "SIGKILL"),
        ("SIGKILL", True, "oom-kill"),
        ("SIGSEGV", True, "SIGSEGV"),
        ("SIGTRAP", None, "other-signal"),
        ("0", None, "exit"),
        ("255", None, "exit"),
        ("killed", True, "killed"),
        ("unkillable", None, "killed"),
    ],
)
def test_every_status_has_a_cause(status: str, oom_killed: bool | None, cause: str) -> None:
    assert crash_cause(status, oom_killed) == cause
    assert cause in CRASHES


def counters(root: Path, vmstat: str | None, cgroup: str | None, events: str | None) -> dict[str, int]:
    """The kernel's counters in a tree of which only some files are there."""
    for name, text in (
        ("proc/vmstat", vmstat),
        ("proc/self/cgroup", cgroup),
        ("sys/fs/cgroup/user/probe/memory.events", events),
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_text(text)
    return oom_kills(root)


def test_the_kernel_s_counters_are_read_each_for_itself(tmp_path: Path) -> None:
    vmstat, cgroup, events = "pgfault 9\noom_kill 3\n", "0::/user/probe\n", "oom 2\noom_kill 2\n"
    assert counters(tmp_path / "both", vmstat, cgroup, events) == {"machine": 3, "cgroup": 2}
    assert counters(tmp_path / "first", vmstat, "4:memory:/user/probe\n", events) == {"machine": 3}
    assert counters(tmp_path / "torn", "oom_kill x\n", cgroup, events) == {"cgroup": 2}
    assert counters(tmp_path / "none", None, None, None) == {}


def test_the_cgroup_s_counter_is_believed_before_the_machine_s() -> None:
    assert killed_for_memory({"machine": 1}, {"machine": 2}) is True
    assert killed_for_memory({"machine": 1, "cgroup": 0}, {"machine": 2, "cgroup": 0}) is False
    assert killed_for_memory({"machine": 1, "cgroup": 0}, {"machine": 2, "cgroup": 1}) is True
    assert killed_for_memory({"machine": 1}, {"machine": 1, "cgroup": 1}) is False
    assert killed_for_memory({}, {"cgroup": 1}) is None


def test_the_document_names_every_failure() -> None:
    page = (CHECKOUT / "docs/results.md").read_text("utf-8")
    section = page.partition("## Failures")[2].partition("\n## ")[0]
    assert set(FAILURES) <= set(re.findall(r"`([^`]+)`", section))


CASE = Case("cpu", "default", "copy", "float32")


def made(*results: CheckResult) -> Outcome:
    replies = [Reply([result], f"trial {number}") for number, result in enumerate(results)]
    setting = settings_for("onednn")[0]
    return outcome_of(CASE, replies, Device("cpu", "onednn"), setting, BACKENDS["onednn"])


def test_numbers_that_json_lacks_become_none() -> None:
    numerics = {"max_abs": math.inf, "list": [math.nan, 1.5], "exact": True}
    outcome = made(CheckResult("wrong", "differs", numerics=numerics))
    assert outcome.numerics == {"max_abs": None, "list": [None, 1.5], "exact": True}


def test_a_failure_and_a_pass_are_flaky() -> None:
    outcome = made(CheckResult("crash", "the process ended", "SIGSEGV"), CheckResult())
    assert (outcome.state, outcome.trial) == ("flaky", "trial 1")
    assert [attempt.trial for attempt in outcome.attempts] == ["trial 0", "trial 1"]
    assert outcome.evidence[0] == "1 of 2 tries failed: the process ended"
