"""Test that a run killed and resumed again and again has the same results as an undisturbed run.

Ten simulated machines and the CPU each run a small plan undisturbed. Then runs of each are killed by SIGKILL
at random moments, and resumed with ``--resume --retry-aborted`` until they finish. The kills hit the
controller alone and its whole process group in turns, and most runs are killed several times.

A finished run is compared with the undisturbed run. No outcome in the journal is lost, changed or duplicated,
no case has another state, cause or implementation, and the verdict is the same. The plan times nothing, so
that other load does not change the figures, and noise cannot decide between settings. A verdict that differs
although the outcomes are equal is counted separately::

    python benchmarks/soak_machines.py --kills 50 -o benchmarks/results/soak_machines.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import publish
from soak import MARK, left_over, outcomes

CPU = "cpu"
#: Machines with budgets as wide as those of a real machine. Tight budgets report a busy machine as hung.
MACHINES = (
    "bn-dead", "compile-abort", "db-read-only", "env-rejected", "gemm-memory-fault", "healthy-gfx1100",
    "igemm-compile-failure", "naive-fallback", "rdna1-fp16-broken", "rdna1-rocm52-conv-dead",
)  # fmt: skip
PLAN = (
    "--only", "copy", "--only", "gemm", "--only", "convolution", "--settings", "vendor-off",
    "--problem", "conv2d-fp32-n1-c4-i8x8-k4-f3x3",
)  # fmt: skip
#: Fields of an outcome that depend neither on time nor on the process that ran the case.
COMPARED = ("state", "cause", "rung", "solver", "algorithm", "workspace_bytes", "numerics", "native_isa")
LANES = os.cpu_count() or 1


@dataclass
class Subject:
    """A machine or the CPU, with its undisturbed run and the run that is being killed."""

    name: str
    folder: Path
    reference: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    runs: int = 0
    killed: int = 0
    tally: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def out(self) -> Path:
        return self.folder / f"{self.name}-{self.runs}"

    def begun(self) -> list[str]:
        """Return the options of the current run, which resumes if it has a journal."""
        if (self.out / "journal.jsonl").exists():
            return ["--resume", str(self.out), "--retry-aborted"]
        device = ("--device", "cpu") if self.name == CPU else ("--simulate", self.name)
        return [*device, *PLAN, "--out", str(self.out)]

    def start(self, mark: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "rocmprobe", "run", *self.begun()],
            env={**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"}, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def results(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "results.json").read_text("utf-8"))
        return found


def undisturbed(subject: Subject) -> None:
    began = time.monotonic()
    subject.start(f"{os.getpid()}-{subject.name}").wait()
    subject.seconds = time.monotonic() - began
    subject.reference = subject.results()
    assert not subject.reference["partial"], subject.name
    subject.runs += 1


def killed(subject: Subject, number: int, seed: int) -> None:
    """Start or resume the subject's run and kill it at a random moment. If it ended by itself, compare it."""
    chance = random.Random(f"{seed} {subject.name} {number}")  # noqa: S311
    mark, group = f"{os.getpid()}-{subject.name}-{number}", number % 2 == 1
    before = {each["id"]: each for each in outcomes(subject.out / "journal.jsonl")}
    run = subject.start(mark)
    try:
        run.wait(chance.uniform(0.2, subject.seconds))
    except subprocess.TimeoutExpired:
        (os.killpg if group else os.kill)(run.pid, signal.SIGKILL)
        run.wait()
        subject.killed += 1
        subject.tally["of the group" if group else "of the controller"] += 1
    else:
        subject.tally["ended before the kill"] += 1
    deadline = time.monotonic() + 30
    while left_over(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    subject.tally["processes left"] += len(left_over(mark))
    kept = {each["id"]: each for each in outcomes(subject.out / "journal.jsonl")}
    # A case whose outcome is "aborted" or "blocked" runs again.
    changed = [case for case, outcome in before.items() if outcome["state"] not in ("aborted", "blocked")
               and kept.get(case) != outcome]  # fmt: skip
    subject.wrong += [f"{subject.name}: {case}: lost or changed after a kill" for case in changed]
    if run.returncode >= 0:
        compare(subject)


def finished(subject: Subject) -> None:
    """Resume the current run for the last time, and compare it."""
    if (subject.out / "journal.jsonl").exists():
        subject.start(f"{os.getpid()}-{subject.name}-last").wait()
        compare(subject)


def compare(subject: Subject) -> None:
    """Compare the finished run with the undisturbed run. The next kill begins another run."""
    found, expected = subject.results(), subject.reference
    subject.tally["runs finished"] += 1
    written = outcomes(subject.out / "journal.jsonl")
    good = Counter(each["id"] for each in written if each["state"] not in ("aborted", "blocked"))
    twice = [f"{case}: answered twice" for case, count in good.items() if count > 1]
    ours = {each["id"]: each for each in found["outcomes"]}
    theirs = {each["id"]: each for each in expected["outcomes"]}
    subject.tally["outcomes compared"] += len(theirs)
    wrong = [*twice, *(f"{case}: lost" for case in theirs.keys() - ours.keys())]
    wrong += [f"{case}: was not asked" for case in ours.keys() - theirs.keys()]
    wrong += [f"{case}: there twice" for case, count in Counter(ids(found)).items() if count > 1]
    wrong += [
        f"{case}: {name}: {ours[case].get(name)!r} instead of {theirs[case].get(name)!r}"
        for case in theirs.keys() & ours.keys()
        for name in COMPARED
        if ours[case].get(name) != theirs[case].get(name)
    ]
    if found["partial"]:
        wrong.append("not finished")
    verdicts = [verdict(each) for each in (found, expected)]
    if verdicts[0] != verdicts[1]:
        if not wrong:
            subject.tally["verdicts that differ over equal outcomes"] += 1
        wrong.append(f"verdict {verdicts[0]} instead of {verdicts[1]}")
    subject.wrong += [f"{subject.name}: {words}" for words in wrong]
    subject.runs += 1


def ids(results: dict[str, Any]) -> list[str]:
    return [each["id"] for each in results["outcomes"]]


def verdict(results: dict[str, Any]) -> tuple[Any, Any]:
    """Return the verdict, and the setting that it recommends."""
    recommended = results["recommendation"]
    return recommended["verdict"], recommended["configuration"]["setting"]


def soak(kills: int, minutes: float, folder: Path, seed: int) -> dict[str, Any]:
    """Kill runs until there are ``kills`` kills or ``minutes`` have passed, and return the figures."""
    subjects = [Subject(name, folder) for name in (*MACHINES, CPU)]
    free = list(subjects)
    lock, ends, numbers = threading.Lock(), time.monotonic() + 60 * minutes, iter(range(1_000_000))

    def lane(_: int) -> None:
        while time.monotonic() < ends:
            with lock:
                done = sum(each.killed for each in subjects)
                # A run in progress can end before its kill, so it counts as one kill for now.
                subject = None
                if free and done + len(subjects) - len(free) < kills:
                    # Subjects with the fewest kills come first.
                    subject = min(free, key=lambda each: each.killed)
                    free.remove(subject)
                    number = next(numbers)
            if done >= kills:
                return
            if subject is None:
                time.sleep(0.2)
                continue
            killed(subject, number, seed)
            print(f"{subject.name}: {dict(subject.tally)} {subject.wrong}", file=sys.stderr, flush=True)
            with lock:
                free.append(subject)

    with ThreadPoolExecutor(LANES) as lanes:
        list(lanes.map(undisturbed, subjects))
        print(
            f"undisturbed after {time.monotonic() - ends + 60 * minutes:.0f} s", file=sys.stderr, flush=True
        )
        list(lanes.map(lane, range(LANES)))
        list(lanes.map(finished, subjects))
    tally: Counter[str] = Counter({"processes left": 0, "verdicts that differ over equal outcomes": 0})
    for subject in subjects:
        tally.update(subject.tally)
    return {
        "seed": seed,
        "subjects": {
            each.name: {"kills": each.killed, "verdict": verdict(each.reference)} for each in subjects
        },
        "kills": sum(each.killed for each in subjects),
        **{name.replace(" ", "_"): int(count) for name, count in sorted(tally.items())},
        "wrong": [words for each in subjects for words in each.wrong],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no kill later than this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        publish(soak(options.kills, options.minutes, Path(name), options.seed), options.output)


if __name__ == "__main__":
    main()
