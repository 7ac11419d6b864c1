"""Cost of each setting of oneDNN on this CPU: throughput and first call, as ratios to ``default``.

The settings alternate, and each round uses new children without tracing and with one thread. The best time of
all rounds is the time that other programs disturbed least::

    python benchmarks/settings_cost.py --rounds 8 -o benchmarks/results/settings_cost.md
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from figures import heading, publish, table

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.child import Child
from rocmprobe.engine.launch import environment, must_spawn
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.problems import problems
from rocmprobe.model.results import Setting
from rocmprobe.worker.messages import Answer, Event, Ready, Spec

#: Least seconds of a measurement.
SECONDS = 0.1
#: Settings that are left out: the user's own environment, and a dtype that changes the convolutions.
LEFT_OUT = ("as-found", "float64")


def timings(setting: Setting, texts: Sequence[str], folder: Path) -> dict[str, dict[str, float]]:
    """Return the timings of each problem, keyed by text, and of a first call ("first"), from one new
    child."""
    environ = environment(setting, folder, folder, {}, os.environ)
    child = Child(environ, folder, spawn=must_spawn(setting))
    child.send(Spec("cpu", "onednn", setting, SECONDS, environ))
    if answer(child, Ready) is None:
        raise SystemExit(f"{setting.name}: the child did not come up")
    found = {}
    for name, check, text in [
        ("first", "start-up", texts[0]),
        *((text, "throughput", text) for text in texts),
    ]:
        own = f"{text}-nhwc" if setting.channels_last else text
        child.send(Case("cpu", setting.name, check, "float32", own))
        attempt = answer(child, Answer).attempts[-1]
        if attempt.state != "pass":
            raise SystemExit(f"{setting.name}, {text}: {attempt.state} {attempt.message}")
        found[name] = attempt.timings
    child.close(30)
    return found


def answer(child: Child, wanted: type[Event]) -> Any:
    while event := child.event(600):
        if isinstance(event, wanted):
            return event
    return None


#: Seconds by setting, problem and timed quantity.
Round = Mapping[str, Mapping[str, Mapping[str, float]]]


def ratio(rounds: Sequence[Round], name: str, key: str) -> float:
    """Return the geometric mean over the problems of a setting's best time relative to ``default``."""
    problems_timed = [text for text, times in rounds[0][name].items() if key in times]
    return statistics.geometric_mean(
        [best(rounds, name, text, key) / best(rounds, "default", text, key) for text in problems_timed]
    )


def best(rounds: Sequence[Round], name: str, text: str, key: str) -> float:
    return min(each[name][text][key] for each in rounds)


def cost(rounds: Sequence[Round], name: str, key: str) -> str:
    """Return the ratio over all rounds and over either half of the rounds. The halves show how reliable it
    is."""
    halves = sorted(ratio(half, name, key) for half in (rounds[::2], rounds[1::2]))
    return f"{ratio(rounds, name, key):.2f} ({halves[0]:.2f} to {halves[1]:.2f})"


def measured(rounds_wanted: int) -> list[str]:
    """Return the lines of the result."""
    # The fork server reads this when it imports torch. Threads that wait for each other would measure other
    # programs.
    os.environ["OMP_NUM_THREADS"] = "1"
    settings = [each for each in settings_for("onednn", "all") if each.name not in LEFT_OUT]
    texts = [problem.text for problem in problems("quick", "throughput")]
    load = [os.getloadavg()[0]]
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        timings(settings[0], texts[:1], Path(folder))  # starts the server
        for number in range(rounds_wanted):
            turn = settings if number % 2 == 0 else settings[::-1]
            rounds.append({each.name: timings(each, texts, Path(folder)) for each in turn})
            print(f"round {number + 1} of {rounds_wanted}", flush=True)
            load.append(os.getloadavg()[0])
    keys = {"forward": "fwd_p10", "forward + backward": "fwd_bwd_p10", "first call": "first_call"}
    return [
        *heading("Cost of settings on a CPU", f"python benchmarks/settings_cost.py --rounds {rounds_wanted}"),
        f"Times relative to `default` with one thread: the best of {rounds_wanted} rounds, geometric mean "
        f"over {len(texts)} problems. In brackets: either half of the rounds. "
        f"Load average: {min(load):.1f} to {max(load):.1f}.",
        "",
        *table(
            ("setting", *keys),
            ((each.name, *(cost(rounds, each.name, timed) for timed in keys.values())) for each in settings),
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    publish(measured(options.rounds), options.output)


if __name__ == "__main__":
    main()
