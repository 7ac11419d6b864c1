"""Draw simulated machines with one fault each, and count how often the verdict of a run is right.

The benchmark draws the library, the effect, the kind of convolution, the direction, the dtype, the sizes
(batch, channels, pixels) above which the fault happens, its rate, and the solvers or the variable without
which it does not happen. An oracle replaces the trials (see ``oracle.py``). The same seed draws the same
machines::

    python benchmarks/verdicts.py --column before -o benchmarks/results/verdicts.md

A verdict is "right" if the fault cannot happen in the run's cases under the recommended setting. It is
"cautious" if the run recommends no setting of PyTorch on the GPU, or names what fails as a limit of the
setting. It is "unseen" if the fault is rare, and every case that can fail ran and passed. Else it is "wrong".
The cases are those of level quick in the dtypes for which the setting is recommended.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cures import CHIPS, PLACES, RATES, Chip, above, switched_off, toml_rows
from figures import heading, publish, table
from oracle import Recordings, always, oracle_run, planned_cases, recording

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.session import Session
from rocmprobe.judge.recommendation.limits import words_of
from rocmprobe.knowledge.settings import with_cures
from rocmprobe.model.results import DIRECTIONS, Results

OUTCOMES = ("right", "cautious", "unseen", "wrong")
#: Regular expressions for problems, keyed by kind of convolution.
KINDS = {
    "any": "", "2-d": "^conv2d", "transposed": "^conv_transpose", "1-d": "^conv1d", "3-d": "^conv3d",
    "depthwise": r"-c(\d+)-i\S*-k\1-\S*-g\1(-|$)", "grouped": r"-g\d",
}  # fmt: skip
#: Letter in a problem's name, and range of the largest size that works.
SIZES = {"batch": ("n", 1, 20), "channels": ("c", 8, 512), "pixels": ("i", 8, 200)}
DTYPES = ("float32", "float16", "bfloat16")
EFFECTS = ("raise", "raise", "wrong", "wrong", "signal", "hang")


@dataclass(frozen=True)
class Draw:
    """A machine: its chip and its fault. ``kind`` and ``size`` are words, "" for every call."""

    name: str
    chip: Chip
    rung: str
    fault: Mapping[str, Any]
    kind: str
    size: str
    rate: str
    without: str

    @property
    def text(self) -> str:
        """The machine's file."""
        return toml_rows(self.chip, f"drawn: {self.words}", "benchmarks/verdicts.py", self.fault)

    @property
    def words(self) -> str:
        fault = self.fault
        selected = (*fault.get("directions", ()), *fault.get("dtypes", ()))
        parts = (self.rung, fault["effect"], self.kind, *selected, self.size, self.rate, self.without)
        return ", ".join(filter(None, parts))


def draws(number: int, seed: int) -> Iterator[Draw]:
    chance = random.Random(seed)  # noqa: S311
    for count in range(number):
        rung = "conv" if chance.random() < 0.6 else chance.choice(list(PLACES))
        chip = chance.choice(CHIPS)
        library, operator = PLACES[rung]
        rate, effect = chance.choice(list(RATES)), chance.choice(EFFECTS)
        fault: dict[str, Any] = {"library": library, "effect": effect, "chance": RATES[rate]}
        if effect == "raise":
            fault["message"] = f"a fault of the rung {rung}"
        if operator:
            fault["operator"] = operator
        if chance.random() < 0.3:
            fault["dtypes"] = [chance.choice(DTYPES)]
        kind, size, without = "", "", ""
        if rung == "conv":
            kind = chance.choice(list(KINDS))
            if chance.random() < 0.4:
                fault["directions"] = [chance.choice(DIRECTIONS)]
            patterns = [f"(?=.*{KINDS[kind]})" if KINDS[kind][:1] == "-" else KINDS[kind]]
            if chance.random() < 0.4:
                of = chance.choice(list(SIZES))
                letter, low, high = SIZES[of]
                largest = chance.randint(low, high)
                size = f"{of} above {largest}"
                patterns.append(f".*-{letter}{above(largest)}(x|-|$)")
            fault["problem"] = "".join(patterns)
        cures = [row for row in with_cures("miopen", "default", chip.torch) if rung in row.cures and row.env]
        if cures and chance.random() < 0.7:
            cure = chance.choice(cures)
            solvers = switched_off(cure) if rung == "conv" else []
            name, value = list(cure.env.items())[-1]
            fault.update({"solver": solvers} if solvers else {"unless": {name: re.escape(value)}})
            without = f"not under {cure.name}"
        fault["source"] = "drawn"
        yield Draw(f"drawn-{count + 1:03}", chip, rung, fault, kind, size, rate, without)


def verdict(session: Session, results: Results, cases: Mapping[str, Case]) -> tuple[str, str, list[str]]:
    """Return the outcome (see ``OUTCOMES``), the recommended setting, and the ids of cases that can fail."""
    recommended = results.recommendation
    assert recommended is not None
    own = results.setting(results.recommended)
    if own is None or own.device == "cpu":
        return "cautious", results.recommended or "", []
    failing: list[str] = []
    for dtype in DTYPES:
        found = recommended.per.get(f"{dtype}/{results.purpose}", {}).get("setting")
        name = results.recommended if dtype == "float32" else found
        setting = results.setting(name)
        if setting is None or setting.device == "cpu":
            continue
        failing += [
            moved.id
            for case in cases.values()
            if case.setting == "default" and case.dtype == dtype
            for moved in [replace(case, setting=setting.name, needs=(), if_failed=(), repeats=1)]
            if always(session, moved)
            and not any(limit.startswith(words_of(moved)) for limit in recommended.limits)
        ]
    states = {outcome.id: outcome.state for outcome in results.outcomes}
    if failing and all(states.get(each) in ("pass", "slow", "xpass") for each in failing):
        return "unseen", own.name, failing
    if not failing and recommended.limits:
        return "cautious", own.name, failing
    return ("wrong" if failing else "right"), own.name, failing


def reason(results: Results, failing: list[str]) -> str:
    """Return the checks that can fail, and what the run knows of the first case."""
    checks = Counter(each.split("/")[2] for each in failing)
    outcomes = {outcome.id: outcome.state for outcome in results.outcomes}
    states = Counter(outcomes.get(each, "not run") for each in failing)
    return "; ".join(
        ", ".join(f"{name} {count}" for name, count in counted.most_common(4)) for counted in (checks, states)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the machines and of the recordings")
    parser.add_argument("--machines", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--column", default="before", help="column of the verdicts in the table")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    recordings = Recordings(arguments.folder / "recordings")
    kept = arguments.folder / "verdicts.json"
    columns: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    column = columns.setdefault(arguments.column, {})
    drawn = list(draws(arguments.machines, arguments.seed))
    for number, draw in enumerate(drawn):
        if draw.name in column:
            continue
        path = arguments.folder / f"{draw.name}.toml"
        path.write_text(draw.text, "utf-8")
        with recording(recordings, number):
            session, results = oracle_run(path, arguments.folder / "run")
            found, setting, failing = verdict(session, results, planned_cases(session))
        sentence = results.recommendation.sentence if results.recommendation else ""
        column[draw.name] = [found, setting, reason(results, failing), failing[:5], sentence]
        print(draw.name, draw.words, "->", found, setting, column[draw.name][2], flush=True)
        kept.write_text(json.dumps(columns))
    publish(report(drawn, columns, arguments.seed), arguments.output)


def report(drawn: list[Draw], columns: Mapping[str, Mapping[str, Any]], seed: int) -> list[str]:
    """Return the result: counts by verdict and by rung, and the wrong verdicts."""
    command = f"python benchmarks/verdicts.py FOLDER --machines {len(drawn)} --seed {seed}"
    lines = heading("Verdicts on drawn faults", command)
    counts = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
    lines += [f"Machines that ran, of {len(drawn)}: {counts}.", ""]
    head = ["rung", *(f"{name}: {found}" for name in columns for found in OUTCOMES)]
    rows = []
    for rung in ("all", *PLACES):
        names = [draw.name for draw in drawn if rung in ("all", draw.rung)]
        counted = [
            Counter(column[name][0] for name in names if name in column) for column in columns.values()
        ]
        rows.append([rung, *(each[found] for each in counted for found in OUTCOMES)])
    lines += [*table(head, rows), ""]
    head = ["machine", "fault", "chip", *columns, "cases that can fail; their outcomes"]
    rows = []
    for draw in drawn:
        found = [column.get(draw.name, ["not run", "", ""]) for column in columns.values()]
        if any(each[0] == "wrong" for each in found):
            answers = [": ".join(filter(None, each[:2])) for each in found]
            last = next(each[2] for each in reversed(found) if each[0] == "wrong")
            rows.append([draw.name, draw.words, draw.chip.isa, *answers, last])
    return [*lines, "Wrong:", "", *table(head, rows, texts=len(head))]


if __name__ == "__main__":
    main()
