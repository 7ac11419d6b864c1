"""Two runs at once on one device: both finish right, no two cases of theirs overlap, and none waits without a
word."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from runs import PROBLEM, Background, journal

from rocmprobe.detect.sensors import read_conditions
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import read_results

ASKED = (
    "--device", "cpu", "--only", "throughput", "--settings", "vendor-off", "--problem", PROBLEM,
)  # fmt: skip
#: Holds a device until it is told to end.
HOLDER = """
import sys
from pathlib import Path
from rocmprobe.engine.lease import DeviceLease
lease = DeviceLease(["cpu"], Path("/runs/another"))
lease.take()
print(flush=True)
sys.stdin.read()
lease.release()
"""


def test_two_runs_on_one_device_both_finish(tmp_path: Path) -> None:
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    pair = [Background(tmp_path / name, *ASKED, env=env) for name in ("one", "two")]
    for each in pair:
        each.process.communicate(timeout=300)
        results = read_results(each.folder / "results.json")
        assert not results.partial
        assert {outcome.state for outcome in results.outcomes} == {"pass"}
        # A virtual CPU may have neither clock nor sensor.
        readable = set(read_conditions(Tree(Path("/")), None))
        for conditions in (outcome.conditions for outcome in results.outcomes):
            assert readable <= set(conditions.get("before", {})) & set(conditions.get("after", {}))


def test_who_waits_says_for_whom(tmp_path: Path) -> None:
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], env={**os.environ, **env}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout
    assert holder.stdout.readline() == "\n"
    waiting = Background(tmp_path / "out", *ASKED, env=env)
    assert waiting.process.stdout
    said = next(line for line in waiting.process.stdout if line.startswith("waiting"))
    assert re.fullmatch(
        rf"waiting for run /runs/another \(pid {holder.pid}\) on cpu since \d\d:\d\d:\d\d\n", said
    )
    assert "outcome" not in {record["record"] for record in journal(waiting.folder)}
    holder.communicate(timeout=60)
    waiting.process.communicate(timeout=300)
    left = [record["left"] for record in journal(waiting.folder) if record.get("phase") == "device"]
    assert left == [None, 0]
    assert {outcome.state for outcome in read_results(waiting.folder / "results.json").outcomes} == {"pass"}
