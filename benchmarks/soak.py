"""Test that runs survive random faults and kills at random moments.

Part one tests simulated machines that crash, hang, exit, raise and return wrong results at random, until
``--trials`` child processes have ended. Every case must have the state that its fault requires. Part two
kills the controller with SIGKILL at a random moment of a run and resumes the run with ``--resume``,
``--kills`` times. Every outcome in the journal must stay unchanged and occur once, and no process must be
left::

    python benchmarks/soak.py --trials 1000 --kills 200 -o benchmarks/results/soak.json

``benchmarks/soak_machines.py`` kills runs of the simulated machines of rocmprobe.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from figures import publish

EFFECTS = {
    "raise": "error",
    "wrong": "wrong",
    "signal": "crash",
    "exit": "crash",
    "hang": "hang",
    "busy": "hang",
}
SIGNALS = ("SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGKILL")
#: Hangs are rare, because the benchmark waits for each of them.
WEIGHTS = {"hang": 1, "busy": 1, "raise": 6, "wrong": 6, "signal": 10, "exit": 6, "none": 10}
MARK = "LC_SOAK"
#: Number of runs at the same time.
LANES = os.cpu_count() or 1
#: Most seconds until the kill. A run takes about as long.
LONGEST_WAIT = 5.0
MACHINE = """
summary = "random faults"
source = "benchmarks/soak.py"
[budgets]
first_call = 3
steady = 5
teardown = 5
hangs = 1000
crashes = 1000
[[gpus]]
name = "AMD Radeon RX 5600 XT"
vendor = "amd"
native_isa = "gfx1010"
effective_isa = "gfx1030"
[facts]
"torch.kind" = "rocm"
"torch.version" = "1.13.1+rocm5.2"
"""


def problems(count: int) -> list[str]:
    return [f"conv2d-fp32-n1-c{number + 1}-i6x6-k2-f3x3" for number in range(count)]


def machine(path: Path, texts: list[str], chance: random.Random) -> dict[str, str]:
    """Write a machine with a random fault for each problem. Return the state that each problem must end
    in."""
    rows, expected = [MACHINE], {}
    for text in texts:
        effect = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        expected[text] = EFFECTS.get(effect, "pass")
        if effect != "none":
            rows.append(
                f'[[faults]]\nlibrary = "miopen"\neffect = "{effect}"\nproblem = "^{text}$"\n'
                f'message = "miopenStatusUnknownError"\nsource = "soak"\n'
                f'signal = "{chance.choice(SIGNALS)}"\n'
            )
    path.write_text("\n".join(rows), "utf-8")
    return expected


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rocmprobe", "run", *arguments]


def asked(path: Path, texts: list[str], out: Path) -> list[str]:
    named = [part for text in texts for part in ("--problem", text)]
    return command(
        "--simulate", str(path), "--only", "*/default/convolution/*", "--purpose", "inference",
        "--settings", "vendor-off", "--out", str(out), *named,
    )  # fmt: skip


def outcomes(journal: Path) -> list[dict[str, Any]]:
    lines = journal.read_text("utf-8").splitlines() if journal.exists() else []
    whole = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record.get("record") == "outcome":
            whole.append(record["outcome"])
    return whole


def left_over(mark: str) -> list[int]:
    """Return the processes that still have the mark in their environment."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def one_run_in_faults(number: int, seed: int, folder: Path) -> tuple[int, Counter[str], list[str]]:
    """Return the number of children that ended, the states, and the misjudged cases."""
    out, toml, texts = folder / f"faults-{number}", folder / f"faults-{number}.toml", problems(10)
    expected = machine(toml, texts, random.Random(f"{seed} faults {number}"))  # noqa: S311
    subprocess.run(asked(toml, texts, out), capture_output=True, check=False)
    results = json.loads((out / "results.json").read_text("utf-8"))
    found = {outcome["problem"]: outcome["state"] for outcome in results["outcomes"]}
    misjudged = [
        f"{text}: {found.get(text)} instead of {state}"
        for text, state in expected.items()
        if found.get(text) != state
    ]
    shutil.rmtree(out)
    return len(results["trials"]), Counter(found.get(text, "lost") for text in texts), misjudged


def soak_faults(trials: int, folder: Path, seed: int) -> dict[str, Any]:
    ended, runs = 0, 0
    states: Counter[str] = Counter()
    misjudged: list[str] = []
    with ThreadPoolExecutor(LANES) as lanes:
        while ended < trials:
            numbers = range(runs, runs + LANES)
            for children, found, wrong in lanes.map(lambda n: one_run_in_faults(n, seed, folder), numbers):
                ended += children
                states += found
                misjudged += wrong
            runs += LANES
    return {
        "runs": runs, "trials": ended, "questions": states.total(), "states": dict(states),
        "misjudged": misjudged,
    }  # fmt: skip


def one_kill(number: int, seed: int, folder: Path) -> Counter[str]:
    """Kill a run at a random moment and resume it. Return counts of the kill and of its effects."""
    chance = random.Random(f"{seed} kill {number}")  # noqa: S311
    out, toml, texts = folder / f"kill-{number}", folder / f"kill-{number}.toml", problems(8)
    machine(toml, texts, chance)
    mark = f"{os.getpid()}-{number}"
    run = subprocess.Popen(
        asked(toml, texts, out), start_new_session=True, env={**os.environ, MARK: mark},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    time.sleep(chance.uniform(0.1, LONGEST_WAIT))
    alive = run.poll() is None
    run.kill()
    run.wait()
    deadline = time.monotonic() + 5
    while left_over(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    tally: Counter[str] = Counter(
        kills_in_mid_run=alive,
        kills_after_its_end=not alive,
        processes_left=len(left_over(mark)),
        before_its_journal=0,
    )
    before = {outcome["id"]: outcome for outcome in outcomes(out / "journal.jsonl")}
    if not (out / "journal.jsonl").exists():
        tally["before_its_journal"] = 1
        return tally
    subprocess.run(command("--resume", str(out)), capture_output=True, check=False)
    results = json.loads((out / "results.json").read_text("utf-8"))
    after = Counter(outcome["id"] for outcome in results["outcomes"])
    kept = {outcome["id"]: outcome for outcome in results["outcomes"]}
    tally["outcomes_before_the_kill"] = len(before)
    tally["outcomes_lost_or_changed"] = sum(kept.get(case) != outcome for case, outcome in before.items())
    tally["outcomes_twice"] = sum(count > 1 for count in after.values())
    tally["outcomes_missing"] = len(texts) - len(after)
    tally["not_finished_by_resume"] = bool(results["partial"])
    shutil.rmtree(out)
    return tally


def soak_kills(kills: int, folder: Path, seed: int) -> dict[str, Any]:
    total: Counter[str] = Counter(kills_in_mid_run=0)
    number = 0
    with ThreadPoolExecutor(LANES) as lanes:
        while total["kills_in_mid_run"] < kills:
            for tally in lanes.map(lambda n: one_kill(n, seed, folder), range(number, number + LANES)):
                total.update(tally)
            number += LANES
    return {name: int(count) for name, count in total.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        figures = {
            "seed": options.seed,
            "faults": soak_faults(options.trials, Path(name), options.seed) if options.trials else None,
            "kills": soak_kills(options.kills, Path(name), options.seed) if options.kills else None,
        }
    publish(figures, options.output)


if __name__ == "__main__":
    main()
