"""Cost of a trial in addition to its work: a child forked from the server, and a child from scratch.

The benchmark starts children, waits until each is ready, and ends it. Both ways alternate in one run. Then
many forked children show the growth of the controller's memory. A leak would show in every quarter::

    python benchmarks/trial_cost.py --trials 1000 -o benchmarks/results/trial_cost.md
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
from pathlib import Path

from figures import heading, publish, table

from rocmprobe.engine.child import Child
from rocmprobe.engine.launch import environment
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.worker.messages import Ready, Spec

_PARTS = 4
DEFAULT = settings_for("onednn")[0]


def one_trial(folder: Path, spawn: bool) -> float:
    """Return the seconds from the start of a child to its end, without a case."""
    started = time.perf_counter()
    environ = environment(DEFAULT, folder, folder, {}, os.environ)
    child = Child(environ, folder, spawn=spawn)
    child.send(Spec("cpu", "onednn", DEFAULT, 0.1, environ))
    event = child.event(120)
    if not isinstance(event, Ready):
        raise SystemExit(f"a child did not come up: {event}")
    status = child.close(30)
    if status != "0":
        raise SystemExit(f"a child ended with {status}")
    return time.perf_counter() - started


def resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one_trial(folder, spawn=False)  # starts the server
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(options.turns):
            for spawn, times in seconds.items():
                times.append(one_trial(folder, spawn))
        growth = []
        for _ in range(_PARTS):
            before = resident_bytes()
            for _ in range(options.trials // _PARTS):
                one_trial(folder, spawn=False)
            # Garbage is collected first, because memory that waits for the collector is no leak.
            gc.collect()
            growth.append(resident_bytes() - before)
    forked, spawned = (statistics.median(seconds[spawn]) for spawn in (False, True))
    quarters = ", ".join(f"{bytes_grown / 1024:+.0f} KiB" for bytes_grown in growth)
    rows = [
        ("child forked from the server, from its start to its end", f"{forked:.3f} s"),
        ("child from scratch, with its import of torch", f"{spawned:.3f} s"),
        (f"memory of the controller over {_PARTS} times {options.trials // _PARTS} children", quarters),
    ]
    lines = heading("Cost of a trial", f"python benchmarks/trial_cost.py --trials {options.trials}")
    publish([*lines, *table(("quantity", "value"), rows)], options.output)


if __name__ == "__main__":
    main()
