"""Runs that are killed at random moments, then resumed: nothing may be lost, doubled or changed.

Each round starts the same small run and kills its controller, one of its workers or its process group, or
lets its disk get full. After a kill of the controller, a resumption on a read-only disk must change nothing.
Then the run is resumed, and its journal is compared with that of a run in peace. Needs root, for mounts::

    python benchmarks/kills.py --rounds 60 -o benchmarks/results/kills.md
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
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import heading, publish, table

from rocmprobe.process.processes import descendants

ROCMPROBE = [sys.executable, "-m", "rocmprobe", "run"]
CASES = (
    "--device", "cpu", "--only", "convolution", "--settings", "vendor-off,bypass", "--problem",
    "conv2d-fp32-n1-c4-i8x8-k4-f3x3",
)  # fmt: skip
VICTIMS = ("controller", "worker", "group", "full disk", "read-only disk")
#: Sizes of a disk that gets full before the run ends, in KiB. The journal is about 100 KiB long.
_SMALL = (4, 120)
DRAW = random.Random()  # noqa: S311 - drawn moments need no secrecy


@dataclass
class Round:
    """A run that was killed ``after`` so many seconds, and what was wrong after its resumption."""

    victim: str
    after: float
    kept: int = 0
    aborted: int = 0
    wrong: list[str] = field(default_factory=list)


def outcomes(folder: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the outcomes in the journal by case, and the cases that have two without a retry."""
    found: dict[str, dict[str, Any]] = {}
    doubled = []
    path = folder / "journal.jsonl"
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # The process was killed while it wrote the line.
        if record["record"] == "retry":
            found.pop(record["case"], None)
        elif record["record"] == "outcome":
            case = record["outcome"]["id"]
            doubled += [case] if case in found else []
            found[case] = record["outcome"]
    return found, doubled


def mount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)


def started(arguments: Sequence[object], environ: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*ROCMPROBE, *map(str, arguments)], env={**os.environ, **environ}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def kill(process: subprocess.Popen[str], victim: str, out: Path) -> None:
    if victim == "worker":
        # A worker is idle most of the time, so wait until a case runs.
        while process.poll() is None:
            workers = [pid for pid in descendants(process.pid) if _runs(pid, b"rocmprobe.worker")]
            if workers and _in_flight(out):
                os.kill(DRAW.choice(workers), signal.SIGKILL)
                break
    elif victim == "group":
        os.killpg(process.pid, signal.SIGKILL)
    elif victim != "full disk":
        process.kill()


def _in_flight(out: Path) -> bool:
    path = out / "journal.jsonl"
    content = path.read_bytes() if path.exists() else b""
    return content.count(b'"record": "intent"') > content.count(b'"record": "outcome"')


def _runs(pid: int, program: bytes) -> bool:
    try:
        return program in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def alive(mark: str) -> list[int]:
    """Return the processes with ``mark`` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def one_round(folder: Path, victim: str, after: float, states: Mapping[str, str], number: int) -> Round:
    result = Round(victim, after)
    environ = {"TMPDIR": str(folder / "tmp"), "LC_ROCMPROBE_KILLS": f"round-{number}"}
    disk, out = folder / "disk", folder / "disk" / "out"
    for each in (disk, folder / "tmp"):
        each.mkdir()
    small = DRAW.randint(*_SMALL)
    mount(disk, f"size={small}k" if victim == "full disk" else "size=64m")
    process = started(("--out", out, *CASES), environ)
    if victim != "full disk":
        try:
            process.communicate(timeout=after)
        except subprocess.TimeoutExpired:
            kill(process, victim, out)
    process.communicate()
    ends = time.monotonic() + 10
    while (left := alive(environ["LC_ROCMPROBE_KILLS"])) and time.monotonic() < ends:
        time.sleep(0.05)
    result.wrong += [f"{len(left)} processes survive"] if left else []
    known, _ = outcomes(out)
    result.kept = len(known)
    if victim == "read-only disk":
        before = (out / "journal.jsonl").read_bytes() if known else b""
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        refused = started(("--resume", out), environ)
        said = refused.communicate()[0]
        if refused.returncode != 2 or said.count("\n") != 1:
            result.wrong.append(f"read-only: exit {refused.returncode}: {said[-200:]}")
        if known and (out / "journal.jsonl").read_bytes() != before:
            result.wrong.append("read-only: the journal changed")
    subprocess.run(["mount", "-o", "remount,rw,size=64m", str(disk)], check=True)
    again = started(("--resume", out), environ)
    said = again.communicate()[0]
    if again.returncode == 2 and not known:
        # The run was killed before its first record.
        again = started(("--out", out, *CASES), environ)
        said = again.communicate()[0]
    result.wrong += [f"exit {again.returncode}: {said[-300:]}"] if again.returncode not in (0, 1) else []
    _compare(result, known, out, states)
    left_over = (path.name for path in (folder / "tmp").glob("rocmprobe-*"))
    # Locks are kept for the next run.
    result.wrong += [f"left in TMPDIR: {name}" for name in left_over if "-locks-" not in name]
    subprocess.run(["umount", str(disk)], check=True)
    return result


def _compare(result: Round, known: Mapping[str, Any], out: Path, states: Mapping[str, str]) -> None:
    final, doubled = outcomes(out)
    result.wrong += [f"doubled: {case}" for case in doubled]
    result.wrong += [f"changed: {case}" for case in known if final.get(case) != known[case]]
    result.wrong += [f"lost: {case}" for case in states if case not in final]
    for case, outcome in final.items():
        killed = outcome["state"] == "aborted" or "SIGKILL" in json.dumps(outcome)
        result.aborted += killed
        if not killed and outcome["state"] != states.get(case):
            result.wrong.append(f"{outcome['state']} instead of {states.get(case)}: {case}")


def peaceful(folder: Path) -> tuple[dict[str, str], float]:
    """Return the state of each case of a run in peace, and the seconds that the run took."""
    began = time.monotonic()
    process = started(("--out", folder / "out", *CASES), {})
    said = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"a run in peace ends with {process.returncode}: {said}")
    return {
        case: each["state"] for case, each in outcomes(folder / "out")[0].items()
    }, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--victim", action="append", choices=VICTIMS, help="Kill only this one.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mounted", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if not options.mounted:
        # The kernel removes the mounts of a namespace with the namespace.
        command = ["unshare", "-m", sys.executable, *sys.argv, "--mounted"]
        os.execvp(command[0], command)  # noqa: S606 - the arguments are this program's
    DRAW.seed(options.seed)
    rounds = []
    victims = options.victim or VICTIMS
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "peace").mkdir()
        states, seconds = peaceful(Path(name) / "peace")
        for number in range(options.rounds):
            folder = Path(name) / str(number)
            folder.mkdir()
            after = DRAW.uniform(0, seconds)
            each = one_round(folder, victims[number % len(victims)], after, states, number)
            rounds.append(each)
            print(number, each, file=sys.stderr, flush=True)
    rows = []
    for victim in victims:
        mine = [each for each in rounds if each.victim == victim]
        wrong = Counter(each.split(":")[0] for one in mine for each in one.wrong)
        rows.append(
            (victim, len(mine), sum(each.kept for each in mine), sum(each.aborted for each in mine),
             ", ".join(f"{count} x {what}" for what, count in wrong.items()) or "nothing")
        )  # fmt: skip
    lines = heading("Runs that are killed", f"python benchmarks/kills.py --rounds {options.rounds}")
    lines += [
        f"A run of {len(states)} cases is killed at a random moment of its {seconds:.0f} s, then resumed.",
        "",
        *table(("victim", "kills", "outcomes kept", "cases killed", "lost, doubled, changed or left"), rows),
    ]
    publish(lines, options.output)


if __name__ == "__main__":
    main()
