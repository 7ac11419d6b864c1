"""Does a run survive whatever happens: random faults, and a controller killed at random moments.

Part one asks simulated machines that crash, hang, exit, raise and lie at random, until ``--trials`` child
processes have ended; every question must have an outcome of the state its fault asks for. Part two kills
the whole run with SIGKILL at a random moment and takes it up again with ``--resume``, ``--kills`` times;
no outcome that was in the journal may be lost, changed or there twice, and no process may be left::

    python benchmarks/soak.py --trials 1000 --kills 200 -o benchmarks/results/soak.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
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
#: Rare, because each is waited for.
WEIGHTS = {"hang": 1, "busy": 1, "raise": 6, "wrong": 6, "signal": 10, "exit": 6, "none": 10}
MARK = "ROCMPROBE_SOAK"
MACHINE = """
summary = "random faults"
source = "benchmarks/soak.py"
[budgets]
first_call = 1.5
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
    """Write a machine with a random fault for each problem; the state each problem must end in."""
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
    """Processes that still carry the mark in their environment."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def soak_faults(trials: int, folder: Path, chance: random.Random) -> dict[str, Any]:
    ended, questions, runs = 0, 0, 0
    states: Counter[str] = Counter()
    misjudged: list[str] = []
    while ended < trials:
        runs += 1
        out, texts = folder / f"faults-{runs}", problems(10)
        expected = machine(folder / "machine.toml", texts, chance)
        subprocess.run(asked(folder / "machine.toml", texts, out), capture_output=True, check=False)
        results = json.loads((out / "results.json").read_text("utf-8"))
        ended += len(results["trials"])
        found = {outcome["problem"]: outcome["state"] for outcome in results["outcomes"]}
        for text, state in expected.items():
            questions += 1
            states[found.get(text, "lost")] += 1
            if found.get(text) != state:
                misjudged.append(f"{text}: {found.get(text)} instead of {state}")
        shutil.rmtree(out)
    return {
        "runs": runs,
        "trials": ended,
        "questions": questions,
        "states": dict(states),
        "misjudged": misjudged,
    }


def soak_kills(kills: int, folder: Path, chance: random.Random) -> dict[str, Any]:
    lost, twice, unfinished, processes = 0, 0, 0, 0
    for number in range(kills):
        out, texts = folder / f"kill-{number}", problems(8)
        machine(folder / "machine.toml", texts, chance)
        mark = f"{os.getpid()}-{number}"
        run = subprocess.Popen(
            asked(folder / "machine.toml", texts, out), start_new_session=True,
            env={**os.environ, MARK: mark}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(chance.uniform(0.3, 10))
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        deadline = time.monotonic() + 5
        while left_over(mark) and time.monotonic() < deadline:
            time.sleep(0.1)
        processes += len(left_over(mark))
        before = {outcome["id"]: outcome for outcome in outcomes(out / "journal.jsonl")}
        if not (out / "journal.jsonl").exists():
            continue
        subprocess.run(command("--resume", str(out)), capture_output=True, check=False)
        results = json.loads((out / "results.json").read_text("utf-8"))
        after = Counter(outcome["id"] for outcome in results["outcomes"])
        kept = {outcome["id"]: outcome for outcome in results["outcomes"]}
        lost += sum(kept.get(case) != outcome for case, outcome in before.items())
        twice += sum(count > 1 for count in after.values())
        unfinished += bool(results["partial"])
        shutil.rmtree(out)
    return {
        "kills": kills, "outcomes_lost_or_changed": lost, "outcomes_twice": twice,
        "not_finished_by_resume": unfinished, "processes_left": processes,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    chance = random.Random(options.seed)  # noqa: S311
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        figures = {
            "seed": options.seed,
            "faults": soak_faults(options.trials, Path(name), chance) if options.trials else None,
            "kills": soak_kills(options.kills, Path(name), chance) if options.kills else None,
        }
    publish(figures, options.output)


if __name__ == "__main__":
    main()
