"""The caches of exec are filled ahead of time, shape by shape."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs import environment
from warm_machine import DEFAULT, HANG, HANGS, RIGHT, SEARCH, Place

from rocmprobe.exec.conditions import conditions
from rocmprobe.model.results import DIRECTIONS, Setting


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    found.machine()
    found.results()
    return found


def first_calls(printed: str) -> list[tuple[str, float, float]]:
    """Problem with direction, seconds before and seconds after of each row that was printed."""
    rows = re.findall(r"^(conv\S+ \S+): (\S+) s before, (\S+) s after", printed, re.MULTILINE)
    return [(what, float(before), float(after)) for what, before, after in rows]


def test_first_calls_become_short(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = place.shapes(RIGHT, directions=["bwd-data"])
    done = place.warm("--shapes", shapes)
    assert done.returncode == 0, done.stderr
    # Only the simulated search takes 40 seconds.
    ((what, before, after),) = first_calls(done.stdout)
    assert (what, before >= 40, after < 40) == (f"{RIGHT} bwd-data", True, True)
    assert "1 of 1 first calls are warm: " in done.stdout
    assert "Records of searches: 0 before, 1 after." in done.stdout

    monkeypatch.setenv("ROCMPROBE_EXEC_CACHES", str(place.folder / "caches"))
    under = conditions(place.folder / "results.json", "auto", simulated=True)
    database = Path(under.variables["MIOPEN_USER_DB_PATH"])
    assert [each.name for each in database.iterdir()] == ["gfx1030_18.HIP.2_17_0_.ufdb.txt"]

    again = place.warm("--shapes", shapes)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[0].endswith("(warm already)")
    assert sum(each["record"] == "trial" for each in place.journal()) == 2


@pytest.mark.thorough
def test_each_direction_is_warmed_and_can_be_warmed_again(place: Place) -> None:
    shapes = place.shapes(RIGHT)
    found = first_calls(place.warm("--shapes", shapes).stdout)
    assert [what for what, _, _ in found] == [f"{RIGHT} {each}" for each in DIRECTIONS]
    assert all(before >= 40 > after for _, before, after in found)
    repeated = first_calls(place.warm("--shapes", shapes, "--again").stdout)
    assert len(repeated) == 3
    assert all(before < 40 for _, before, _ in repeated)


@pytest.mark.thorough
def test_a_hang_costs_one_direction(place: Place) -> None:
    place.machine(SEARCH + HANG)
    # After a hang, a child under the default setting finds out if the device answers.
    place.results(dataclasses.replace(DEFAULT, name="another"))
    shapes = place.shapes(HANGS, RIGHT)
    done = place.warm("--shapes", shapes, "--limit", "4")
    assert done.returncode == 1, done.stderr
    skipped = [row for row in done.stdout.splitlines() if "skipped, " in row]
    assert len(skipped) == 1
    assert skipped[0].startswith(f"{HANGS} bwd-data: skipped, hang: no answer in 4 s in phase first")
    assert "5 of 6 first calls are warm" in done.stdout
    trials = sum(each["record"] == "trial" for each in place.journal())

    later = place.warm("--shapes", shapes, "--limit", "4")
    assert (later.returncode, later.stdout.count("skipped, hang")) == (1, 1)
    assert sum(each["record"] == "trial" for each in place.journal()) == trials

    place.machine()
    cured = place.warm("--shapes", shapes, "--retry")
    assert cured.returncode == 0, cured.stdout
    assert "6 of 6 first calls are warm" in cured.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_early_end_loses_nothing(place: Place, number: signal.Signals) -> None:
    place.machine(SEARCH + HANG)
    shapes = place.shapes(HANGS)
    command = [
        sys.executable, "-m", "rocmprobe", "warm", "--shapes", shapes, "--limit", "60", "--profile",
        place.folder / "results.json", "--simulate", place.folder / "card.toml",
    ]  # fmt: skip
    caches = {"ROCMPROBE_EXEC_CACHES": str(place.folder / "caches")}
    with subprocess.Popen(
        list(map(str, command)),
        env=environment(caches),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f"{HANGS} fwd: 40")
        while sum(each["record"] == "intent" for each in place.journal()) < 2:
            time.sleep(0.05)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=30)
    if number == signal.SIGINT:
        assert (process.returncode, "run the same command to continue" in err) == (130, True)
        assert "1 of 3 first calls are warm: 40" in out
    place.machine()
    later = place.warm("--shapes", shapes)
    assert later.stdout.splitlines()[0].endswith("(warm already)")
    if number == signal.SIGINT:
        assert "3 of 3 first calls are warm" in later.stdout
    else:
        assert f"{HANGS} bwd-data: skipped, aborted: rocmprobe or the machine ended" in later.stdout
        later = place.warm("--shapes", shapes, "--retry")
        assert "3 of 3 first calls are warm" in later.stdout


def test_each_configuration_has_caches_of_its_own(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("MIOPEN_USER_DB_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setenv("ROCMPROBE_EXEC_CACHES", str(place.folder / "caches"))
    without = dataclasses.replace(
        DEFAULT,
        name="triton-no-buffer-ops",
        env={"AMDGCN_USE_BUFFER_OPS": "0"},
        verdict="native-with-settings",
    )
    found = []
    for setting in (DEFAULT, without):
        under = conditions(place.results(setting), "auto", simulated=True)
        found.append({under.variables[name] for name in names})
        assert str(place.folder / "caches") in under.words
    assert len(found[0] | found[1]) == 6
    # Where the user has a folder for it, the caches stay on that disk.
    monkeypatch.setenv("TRITON_CACHE_DIR", str(place.folder / "mine"))
    own = Path(conditions(place.results(), "auto", simulated=True).variables["TRITON_CACHE_DIR"])
    assert own.parent.parent == place.folder / "mine"
    assert own.parent.name.startswith("rocmprobe-gfx1030-default-")
    monkeypatch.setenv("ROCMPROBE_EXEC_CACHES", "0")
    kept = conditions(place.results(), "auto", simulated=True)
    assert not set(names) & set(kept.variables)


WITHOUT_MIOPEN = Setting("vendor-off", "", "vendor-off", vendor_library=False)


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("nothing", 2, "name the shapes of a program with --shapes"),
        ("both", 2, "cannot be combined"),
        ("no miopen", 3, "the setting vendor-off runs no convolution in MIOpen"),
        ("another machine", 2, "from the simulated machine card; add --simulate card"),
        ("no shapes", 2, "contains no problem"),
        ("own caches", 2, "keeps your own databases and caches"),
    ],
)
def test_what_cannot_be_warmed_is_refused_in_one_line(place: Place, what: str, code: int, words: str) -> None:
    shapes = place.shapes(*([] if what == "no shapes" else [RIGHT]))
    arguments: list[object] = [] if what == "nothing" else ["--shapes", shapes]
    caches = "caches"
    if what == "both":
        arguments += ["--unpack", shapes]
    elif what == "no miopen":
        place.results(WITHOUT_MIOPEN)
    elif what == "another machine":
        arguments += ["--simulate", ""]
    elif what == "own caches":
        place.results(Setting("as-found", "", "native", inherit_environment=True))
    done = place.warm(*arguments, caches=caches)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
