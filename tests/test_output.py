"""Output files: atomic, never through a link, and never over a file of somebody else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import sample
from runs import cli, rocmprobe

from rocmprobe import output
from rocmprobe.engine.journal import RunJournal
from rocmprobe.engine.lease import DeviceLease
from rocmprobe.engine.run import begin
from rocmprobe.exec.caches import Caches
from rocmprobe.kernels import gate
from rocmprobe.model.options import RunOptions
from rocmprobe.model.results import BadInput
from rocmprobe.model.results_file import write_results
from rocmprobe.report.write import write_report

CARD = ("install", "--fact", "gpu=RX 5700 XT", "--fact", "os=Linux")
FORMS = ("html", "json", "junit", "md", "issue")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "old" / "results.json"
    path.parent.mkdir()
    write_results(sample.rdna1(), path)
    return path


def commands(results: Path) -> list[tuple[tuple[object, ...], str]]:
    """Each command that writes a file, and its option for the file."""
    reports = [(("report", results, "--format", form), "-o") for form in FORMS]
    return [*reports, (CARD, "--constraints"), (("shapes",), "-o")]


def run_into(path: Path, words: tuple[object, ...], option: str, *more: str) -> tuple[int, str]:
    program = ("--", sys.executable, "-c", "pass") if words == ("shapes",) else ()
    done = cli(*words, option, path, *more, *program)
    return done.returncode, done.stderr


def test_a_command_replaces_its_own_output_only(tmp_path: Path, results: Path) -> None:
    for number, (words, option) in enumerate(commands(results)):
        path, link = tmp_path / f"output{number}", tmp_path / f"link{number}"
        assert run_into(path, words, option)[0] == 0
        assert run_into(path, words, option)[0] == 0, path.read_text()[:80]
        if words[-1] in ("json", "junit", "md", "issue"):
            continue  # All formats are recognised, and the rest is the same.
        link.symlink_to(path)
        path.write_text("import rocmprobe\n")
        for foreign in (path, link):
            code, said = run_into(foreign, words, option)
            assert (code, said.count("\n")) == (2, 1)
            assert str(foreign) in said
            assert "--force" in said
            assert path.read_text() == "import rocmprobe\n"
        assert run_into(link, words, option, "--force")[0] == 0
        assert not link.is_symlink()
        assert path.read_text() == "import rocmprobe\n"


def test_a_report_does_not_replace_the_results(results: Path) -> None:
    before = results.read_bytes()
    assert run_into(results, ("report", results), "-o")[0] == 2
    assert results.read_bytes() == before


def test_output_may_go_to_a_device(results: Path) -> None:
    done = rocmprobe("report", results, "--format", "md", "-o", "/dev/stdout")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("#")


def test_a_program_that_fails_replaces_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    path.write_text('{"schema_version": 1, "problems": []}')
    fails = ("--", sys.executable, "-c", "raise SystemExit(3)")
    done = cli("shapes", "-o", path, *fails)
    assert (done.returncode, "the program failed" in done.stderr) == (3, True)
    assert path.read_text() == '{"schema_version": 1, "problems": []}'
    assert cli("shapes", "-o", path, "--force", *fails).returncode == 3
    assert "command" in path.read_text()


def test_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    path, dead, alive, others = (
        tmp_path / name for name in ("a", ".a.4194999.tmp", f".a.{os.getppid()}.tmp", ".b.4194999.tmp")
    )
    for each in (dead, alive, others, tmp_path / f".a.{os.getpid()}.tmp"):
        each.touch()
    output.write(path, b"x")
    assert sorted(tmp_path.iterdir()) == sorted((path, alive, others))


def test_a_refused_run_leaves_no_folder(tmp_path: Path) -> None:
    suite = tmp_path / "suite.py"
    suite.write_text("import missing\n")
    kept = tmp_path / "kept"
    kept.mkdir()
    for words in (("--only", "nothing/*"), ("--suite", suite), ("--out", "kept", "--only", "nothing/*")):
        done = cli("run", "--device", "cpu", *words, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert [*kept.iterdir(), *(tmp_path / "reports").iterdir()] == []


ATTACKER = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for files of a second user")
def test_another_user_cannot_misuse_a_folder(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root works in folders of another user, who has put links to root's file there."""
    precious, run_of = tmp_path / "precious", tmp_path / "run"
    precious.write_text("precious")
    begin(RunOptions(device="cpu"), run_of)
    folder = tmp_path / "theirs"

    def plant(*names: str) -> None:
        folder.mkdir()
        for name in names:
            (folder / name).symlink_to(precious)
            os.chown(folder / name, ATTACKER, ATTACKER, follow_symlinks=False)
        os.chown(folder, ATTACKER, ATTACKER)

    def outputs() -> None:
        plant("output")
        for words, option in commands(results):
            assert run_into(folder / "output", words, option)[0] == 2

    def new_run() -> None:
        plant("samples.jsonl")
        with pytest.raises(BadInput, match=f"is a link to {precious}"):
            begin(RunOptions(device="cpu"), folder)

    def planted_later() -> None:
        plant("report.html", "results.json", "junit.xml", "samples.jsonl")
        (run_of / "journal.jsonl").replace(folder / "journal.jsonl")
        write_report(RunJournal(folder))
        assert not any((folder / name).is_symlink() for name in ("report.html", "results.json", "junit.xml"))
        with pytest.raises(OSError, match="symbolic"):
            output.append(folder / "samples.jsonl", b"x")

    def caches() -> None:
        plant("x")
        with pytest.raises(OSError, match="another user"):
            Caches(tmp_path / "own", {"MIOPEN_USER_DB_PATH": str(folder)}).make()
        gate.write(folder, {"chip": "x"}, gate.KernelVerdict("passed"))
        assert [path.name for path in folder.iterdir()] == ["x"]

    def leases() -> None:
        plant()
        folder.rename(tmp_path / f"rocmprobe-locks-{os.getuid()}")
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        with pytest.raises(BadInput, match="other users can change it"):
            DeviceLease("cpu", tmp_path).take()

    for attack in (outputs, new_run, planted_later, caches, leases):
        attack()
        assert precious.read_text() == "precious", attack
        if folder.exists():
            folder.rename(tmp_path / attack.__name__)
