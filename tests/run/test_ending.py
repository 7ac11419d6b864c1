"""How a child ended is told in a closed set of words, the kernel's own killing included."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from runs import CHECKOUT

from rocmprobe.model.results import CAUSES, CRASH_CAUSES
from rocmprobe.run import evidence


@pytest.mark.parametrize(
    ("status", "oom_killed", "cause"),
    [
        *((name, None, name) for name in CRASH_CAUSES if name.startswith("SIG")),
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
    assert evidence.crash_cause(status, oom_killed) == cause
    assert cause in CRASH_CAUSES


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
    return evidence.oom_kills(root)


def test_the_kernel_s_counters_are_read_each_for_itself(tmp_path: Path) -> None:
    vmstat, cgroup, events = "pgfault 9\noom_kill 3\n", "0::/user/probe\n", "oom 2\noom_kill 2\n"
    assert counters(tmp_path / "both", vmstat, cgroup, events) == {"machine": 3, "cgroup": 2}
    assert counters(tmp_path / "first", vmstat, "4:memory:/user/probe\n", events) == {"machine": 3}
    assert counters(tmp_path / "torn", "oom_kill x\n", cgroup, events) == {"cgroup": 2}
    assert counters(tmp_path / "none", None, None, None) == {}


def test_the_cgroup_s_counter_is_believed_before_the_machine_s() -> None:
    assert evidence.killed_for_memory({"machine": 1}, {"machine": 2}) is True
    assert evidence.killed_for_memory({"machine": 1, "cgroup": 0}, {"machine": 2, "cgroup": 0}) is False
    assert evidence.killed_for_memory({"machine": 1, "cgroup": 0}, {"machine": 2, "cgroup": 1}) is True
    assert evidence.killed_for_memory({"machine": 1}, {"machine": 1, "cgroup": 1}) is False
    assert evidence.killed_for_memory({}, {"cgroup": 1}) is None


def test_the_document_names_every_cause() -> None:
    row = re.search(r"^\| `cause` \|.*$", (CHECKOUT / "docs/results.md").read_text("utf-8"), re.MULTILINE)
    assert row
    assert set(CAUSES) <= set(re.findall(r"`([^`]+)`", row[0]))
