"""What passes between a program and its caller passes as without rocmprobe."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launched import executed, program
from runs import environment, wait_until

ALWAYS = ("--bypass", "always", "--")
OURS = re.compile(r"rocmprobe: running under .*\n")


def started(folder: Path, *command: object, **streams: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "rocmprobe", "exec", *ALWAYS, *map(str, command)]
    return subprocess.Popen(words, cwd=folder, env=environment(), text=True, **streams)


def test_streams_arguments_exit_code_and_process_are_the_programs_own(tmp_path: Path) -> None:
    text = """
import os, sys
print(os.getpid(), sys.argv[1:], sys.stdin.read(), end="")
print("said", file=sys.stderr)
sys.exit(7)
"""
    process = started(
        tmp_path, sys.executable, program(tmp_path, text), "--bypass", "--", "-o",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    output, errors = process.communicate("given")
    assert process.returncode == 7
    assert output == f"{process.pid} ['--bypass', '--', '-o'] given"
    ours, said = errors.splitlines()
    assert ours == "rocmprobe: running under only the bypass"
    assert said == "said"


def test_signals_that_python_ignores_for_itself_are_not_ignored_by_the_program(tmp_path: Path) -> None:
    for name in ("PIPE", "XFSZ"):
        done = executed(tmp_path, *ALWAYS, "sh", "-c", f"ulimit -c 0; kill -{name} $$; echo lived")
        assert done.returncode == -getattr(signal, f"SIG{name}")
        assert done.stdout == ""


def test_a_program_that_is_no_python_hands_its_variables_on(tmp_path: Path) -> None:
    site = program(tmp_path, "print('from the user')", "sitecustomize.py").parent
    script = program(tmp_path, f"#!/bin/sh\n{sys.executable} -c 'print(1)'\n", "script")
    script.chmod(0o755)
    done = executed(tmp_path, "--bypass", "always", "./script", PYTHONPATH=paths(site))
    # The first is rocmprobe's own Python.
    assert (done.returncode, done.stdout) == (0, "from the user\nfrom the user\n1\n")


def paths(*folders: Path) -> str:
    """PYTHONPATH with ``folders`` first; what the tests are run with stays, rocmprobe may be on it."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


#: How Python begins, as far as a program can tell.
TELLS = """
import os, sys
print(sys.path, "sitecustomize" in sys.modules, "usercustomize" in sys.modules, sys.meta_path[-1])
try:
    import sitecustomize
    print(sitecustomize.__file__)
except Exception as error:
    print(repr(error))
"""
SITES = {
    "none": {},
    "both": {"sitecustomize.py": "print('site')", "usercustomize.py": "print('user')"},
    "one that fails": {"sitecustomize.py": "import sys\nraise RuntimeError('of the user')"},
    "one that lacks a module": {"sitecustomize.py": "import there_is_no_such_module"},
    "a package": {"sitecustomize/__init__.py": "print('package', __file__)"},
}


@pytest.mark.parametrize("site", SITES)
def test_python_begins_as_without_rocmprobe(tmp_path: Path, site: str) -> None:
    """The user's own sitecustomize and usercustomize run, and fail, as they would."""
    for name, text in SITES[site].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    # A virtual environment may leave usercustomize out; the Python it was made from does not.
    command = [os.path.realpath(sys.executable), program(tmp_path, TELLS)]
    environ = {"PYTHONPATH": paths(tmp_path)}

    def plainly(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*map(str, words)],
            env=environment(environ),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )

    # rocmprobe is a Python program, too, which begins in the same way.
    own, without = plainly(sys.executable, "-c", ""), plainly(*command)
    done = executed(tmp_path, *ALWAYS, *command, **environ)
    assert done.stdout == own.stdout + without.stdout
    assert OURS.sub("", done.stderr) == own.stderr + without.stderr


def test_a_program_that_cannot_be_run_is_one_clear_line(tmp_path: Path) -> None:
    program(tmp_path, "print(1)")
    broken = program(tmp_path, "no first line that names an interpreter", "broken")
    broken.chmod(0o755)
    for command, words in (
        (("there-is-no-such-program",), "no such program"),
        (("./program.py",), "no such program"),
        (("./broken",), "cannot be run"),
    ):
        done = executed(tmp_path, *ALWAYS, *command)
        assert done.returncode == 2
        assert words in OURS.sub("", done.stderr)
        assert len(OURS.sub("", done.stderr).splitlines()) == 1


def test_a_background_job_stays_deaf_to_ctrl_c(tmp_path: Path) -> None:
    """A shell without job control starts it with SIGINT ignored."""
    text = "import signal, time; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN, flush=True)"
    path = program(tmp_path, text)
    line = f"{sys.executable} -m rocmprobe exec --bypass always -- {sys.executable} {path} > out & wait"
    subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environment(), check=True)
    assert wait_until(lambda: (tmp_path / "out").read_text() == "True\n", 5)


FAILS = """
import sys
print("said")
print("RuntimeError: miopenStatusUnknownError", file=sys.stderr)
sys.exit(7)
"""


def test_a_program_that_failed_is_explained_on_request(tmp_path: Path) -> None:
    options = ("--bypass", "always", "--explain", "--", sys.executable)
    done = executed(tmp_path, *options, program(tmp_path, FAILS), MIOPEN_DEBUG_CONV_DIRECT="0")
    assert (done.returncode, done.stdout) == (7, "said\n")
    shown = " ".join(done.stderr.split())
    ended = "miopenStatusUnknownError rocmprobe: the program ended with exit code 7"
    assert f"{ended} The only usable solver is switched off Do:" in shown
    assert "Why: MIOPEN_DEBUG_CONV_DIRECT=0 switches solvers off" in shown

    done = executed(tmp_path, *options, program(tmp_path, "import sys; print('hello', file=sys.stderr)"))
    assert (done.returncode, done.stderr.splitlines()[1:]) == (0, ["hello"])

    killed = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    done = executed(tmp_path, *options, program(tmp_path, killed))
    assert done.returncode == -signal.SIGSEGV
    assert "Where, not why: the program ended in a segmentation fault" in done.stderr


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import programs

PROGRAMS = programs.programs(megabytes=20)
QUICK = [
    ("SIGUSR1 to the process", "exec --explain"),
    ("a daemon that keeps stdout and stderr", "exec --explain"),
    ("stderr closed", "exec --explain"),
    ("SIGINT to the group", "shapes"),
    ("SIGSEGV", "shapes"),
    ("Ctrl-Z, fg and Ctrl-C in a terminal", "shapes"),
]
ALL = [
    pytest.param(title, command, marks=() if (title, command) in QUICK else pytest.mark.thorough)
    for title in PROGRAMS
    for command in programs.COMMANDS
]


@pytest.mark.parametrize(("title", "command"), ALL)
def test_program(tmp_path: Path, title: str, command: str) -> None:
    program = PROGRAMS[title]
    bare, found = (program.run(words, tmp_path) for words in ((), programs.COMMANDS[command]))
    assert programs.differences(bare, found) == [], (bare, found)


@pytest.mark.parametrize("stream", ["2>/dev/full", "<&- >&- 2>&-", "2>&{unread}"])
def test_a_message_that_nobody_can_read_changes_nothing(tmp_path: Path, stream: str) -> None:
    command = [*programs.COMMANDS["shapes"], "sh", "-c", "exit 4"]
    reader, unread = os.pipe()
    os.close(reader)
    script = '"$@" ' + stream.format(unread=unread)
    done = subprocess.run(
        ["bash", "-c", script, "bash", *command], cwd=tmp_path, pass_fds=[unread], check=False
    )
    os.close(unread)
    assert done.returncode == 4
    assert (tmp_path / "shapes.json").exists()
