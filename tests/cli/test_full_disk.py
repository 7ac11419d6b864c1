"""A disk that fills up costs what had no room, and nothing else.

A limit on the size of files stands in for it: the journal hits it first.
"""

from __future__ import annotations

import functools
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from runs import PROBLEM, Run, environment, journal, kinds, machine_file, resume, run

from rocmprobe.model.results_file import read_results


def _limit(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def limited(size: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line where no file grows beyond ``size`` bytes, and no bytecode is cut off."""
    return subprocess.run(
        [sys.executable, "-m", "rocmprobe", *map(str, arguments)], text=True, capture_output=True,
        env=environment({"PYTHONDONTWRITEBYTECODE": "1"}), timeout=300, check=False,
        preexec_fn=functools.partial(_limit, size),
    )  # fmt: skip


def asked(folder: Path) -> Sequence[object]:
    """A run of nine cases."""
    return (
        "--simulate", machine_file(folder / "machine.toml"), "--only", "convolution", "--problem", PROBLEM,
        "--settings", "vendor-off,bypass",
    )  # fmt: skip


def test_no_room_at_the_start_is_one_clear_line(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    done = limited(1000, "run", "--out", folder, *asked(tmp_path))
    assert done.returncode == 2
    assert (
        done.stderr == f"rocmprobe: {folder}: cannot be written (File too large); name another with --out\n"
    )
    assert not folder.exists()


def test_no_temporary_folder_is_one_clear_line(tmp_path: Path) -> None:
    done = limited(0, "run", "--out", tmp_path / "out", *asked(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("rocmprobe: No usable temporary directory found in ")
    assert done.stderr.endswith("; free space there, or set TMPDIR to another folder\n")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("whole")
    return run(folder / "out", *asked(folder))


@pytest.mark.thorough
@pytest.mark.parametrize("settled", [None, 6])
def test_no_room_in_mid_run_ends_it_in_order(tmp_path: Path, whole: Run, settled: int | None) -> None:
    lines = (whole.folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    records = [record["record"] for record in journal(whole.folder)]
    outcomes = [number for number, record in enumerate(records) if record == "outcome"]
    full = records.index("plan") if settled is None else outcomes[settled]
    room = sum(map(len, lines[:full])) + len(lines[full]) // 2
    folder = tmp_path / "out"
    done = limited(room, "run", "--out", folder, *asked(tmp_path))
    assert done.returncode == 5, done.stderr
    kept = kinds(folder).count("outcome")
    assert done.stderr == (
        f"rocmprobe: {folder}: cannot be written any more (File too large); {kept} outcomes are kept; free "
        f"space and continue with `rocmprobe run --resume {folder}`\n"
    )
    if settled:
        # By then there is room for the results.
        partial = read_results(folder / "results.json")
        assert partial.partial
        assert len(partial.outcomes) == kept

    resumed = resume(folder, "--retry-aborted")
    assert resumed.ended.returncode == whole.ended.returncode, resumed.ended.stderr
    assert not resumed.results.partial
    assert resumed.states == whole.states


def test_a_run_cannot_go_on_without_room(tmp_path: Path, whole: Run) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "journal.jsonl").write_bytes((whole.folder / "journal.jsonl").read_bytes())
    done = limited(1000, "run", "--resume", folder)
    assert done.returncode == 2
    assert done.stderr == (
        f"rocmprobe: {folder}: cannot be written (File too large); a run continues only in its own folder\n"
    )


EXAMPLE = Path(__file__).parents[2] / "reports" / "examples" / "cpu" / "results.json"


@pytest.mark.parametrize(
    "words", [("report", EXAMPLE),
              pytest.param(("report", EXAMPLE, "--format", "md"), marks=pytest.mark.thorough)],
    ids=["report", "report md"],
)  # fmt: skip
def test_a_file_that_exists_stays_as_it_is(tmp_path: Path, words: Sequence[object]) -> None:
    output = tmp_path / "output"
    output.write_text("before")
    done = limited(1000, *words, "-o", output, "--force")
    assert done.returncode == 2
    assert done.stderr == f"rocmprobe: {output}: File too large; name another file with -o\n"
    assert [path.name for path in tmp_path.iterdir()] == ["output"]
    assert output.read_text() == "before"


@pytest.mark.parametrize(
    "words", [["--help"], ["report", EXAMPLE, "--format", "md"],
              *(pytest.param(each, marks=pytest.mark.thorough) for each in (
                  ["list", "causes"], ["compare", EXAMPLE, EXAMPLE], ["explain", EXAMPLE],
                  ["explain", EXAMPLE, "--json"]))],
    ids=str,
)  # fmt: skip
def test_no_room_for_standard_output_is_one_clear_line(words: Sequence[object]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rocmprobe", *map(str, words)], env=environment(), text=True,
            stdout=full, stderr=subprocess.PIPE, timeout=300, check=False,
        )  # fmt: skip
    assert done.returncode == 5
    reason = (
        "standard output, or a temporary file: No space left on device; "
        "free some space, or write to another disk"
    )
    assert done.stderr == f"rocmprobe: {reason}\n"
