"""A child that misbehaves costs neither the controller's memory nor the run."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import wait_until

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.child import Capture, Child
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.worker.messages import Phase, Spec

Start = Callable[[str], Child]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start a child whose torch is the given program; ``events`` there is its event pipe."""

    def started(program: str) -> Child:
        package = tmp_path / "torch"
        package.mkdir()
        head = "import os, signal, subprocess, sys, time\nevents = int(sys.argv[2])\n"
        (package / "__init__.py").write_text(head + program)
        environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
        child = Child(environ, tmp_path, spawn=True)
        child.send(Spec("cpu", "onednn", settings_for("onednn")[0], 0.1, environ))
        return child

    return started


def in_a_process(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a program with ``folder`` as its argument: a process has one fork server."""
    program = folder / "program.py"
    program.write_text(text)
    return subprocess.run(
        [sys.executable, program, folder], capture_output=True, text=True, timeout=120, check=False
    )


def ended(child: Child) -> bool:
    """Whether the events end, all of which are passed over."""
    while True:
        try:
            if child.event(60) is None:
                return False
        except EOFError:
            return True


def test_50_megabytes_of_output_leave_head_and_tail_and_no_memory(start: Start) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = start(
        "print('first line')\nfor _ in range(800): os.write(1, b'x' * 65536)\nprint('last line'); os._exit(5)"
    )
    assert ended(child)
    assert child.exit(10) == "5"
    text = child.log.text()
    assert text.startswith("first line\n")
    assert text.endswith("last line\n")
    assert "bytes left out" in text
    assert len(text) < 100_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024


def test_a_log_is_cut_between_lines() -> None:
    """Redaction would not recognise half a token."""
    token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    for separator in ("\n", " ", ""):
        capture = Capture(20_000)
        for _ in range(3000):
            capture.write(f"{token}{separator}".encode())
        head, _, tail = capture.text().partition("left out]\n")
        shown = f"{head.rpartition('[')[0]} {tail}" if separator else ""
        assert set(re.split(r"\s+", shown)) <= {token, ""}
        assert len(capture.text()) > 30_000


def test_garbage_and_half_a_line_on_the_event_pipe_are_passed_over(start: Start) -> None:
    lines = [
        b"garbage \xff",
        b"[1, 2]",
        b'{"event": "phase", "phase": "odd"}',
        b'{"event": "la',
        b"7",
        b'{"event": "of a later version"}',
        b'{"event": "phase", "phase": "on"}',
    ]
    child = start(
        f"for line in {lines!r}: os.write(events, line + b'\\n')\n"
        "os.write(events, b'[' * 60000 + b'\\n')\n"
        'os.write(events, b\'{"event": "phase", "phase": "late"}\\n{"half\'); os._exit(0)'
    )
    assert child.event(60) == Phase("odd")
    assert child.event(60) == Phase("on")
    assert child.event(60) == Phase("late")
    with pytest.raises(EOFError):
        child.event(60)
    assert child.exit(10) == "0"
    assert "[not an event] garbage" in child.log.text()


def test_a_megabyte_without_a_newline_is_dropped(start: Start) -> None:
    child = start(
        "for _ in range(40): os.write(events, b'x' * 65536)\n"
        'os.write(events, b\'\\n{"event": "phase", "phase": "after"}\\n\'); os._exit(0)'
    )
    assert child.event(60) == Phase("after")
    assert child.close(10) == "0"


def test_output_without_end_does_not_keep_the_controller_from_ending_the_child(start: Start) -> None:
    child = start(
        'os.write(events, b\'{"event": "phase", "phase": "on"}\\n\')\nwhile True: os.write(1, b\'x\' * 65536)'
    )
    assert child.event(60) == Phase("on")
    assert child.event(0.2) is None
    child.dump_stacks()
    assert child.kill() == "killed"
    assert not Path(f"/proc/{child.pid}").exists()


@pytest.mark.thorough
def test_a_child_that_ignores_sigterm_is_killed(start: Start) -> None:
    child = start(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        'os.write(events, b\'{"event": "phase", "phase": "on"}\\n\')\ntime.sleep(600)'
    )
    assert child.event(60) == Phase("on")
    assert child.kill() == "killed"
    assert not Path(f"/proc/{child.pid}").exists()


def test_a_child_that_closes_its_pipe_and_stays_is_killed(start: Start) -> None:
    child = start("os.close(events)\ntime.sleep(600)")
    assert ended(child)
    assert child.exit(0.5) == "killed"


@pytest.mark.parametrize(
    "does", ["import time; time.sleep(600)", "import os\nwhile True: os.write(1, b'x' * 4096)"]
)
def test_a_grandchild_that_holds_the_pipes_does_not_hide_the_crash(start: Start, does: str) -> None:
    child = start(
        f"helper = subprocess.Popen([sys.executable, '-c', {does!r}], pass_fds=[events])\n"
        'os.write(events, b\'{"event": "phase", "phase": "helper%d"}\\n\' % helper.pid)\n'
        "os.kill(os.getpid(), signal.SIGSEGV)"
    )
    event = child.event(60)
    assert isinstance(event, Phase)
    helper = Path("/proc") / event.phase.removeprefix("helper")
    assert ended(child)
    assert child.exit(10) == "SIGSEGV"
    assert wait_until(lambda: not helper.exists() or "Z (zombie)" in (helper / "status").read_text(), 10)


def test_nothing_is_left_open_or_unreaped(start: Start) -> None:
    before = len(os.listdir("/proc/self/fd"))
    child = start("os.kill(os.getpid(), signal.SIGKILL)")
    assert ended(child)
    assert child.exit(10) == "SIGKILL"
    assert len(os.listdir("/proc/self/fd")) == before
    assert not Path(f"/proc/{child.pid}").exists()


def test_a_fork_server_is_started_once_and_replaced_if_it_died(tmp_path: Path) -> None:
    done = in_a_process(
        tmp_path,
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from rocmprobe.engine.child import Child, _server, fork_server, start_fork_server\n"
        "os.environ['MIOPEN_JUNK'] = '1'\n"
        "for _ in range(2):\n"
        "    start_fork_server()\n"
        "    started = _server[0].pid\n"
        "    child = Child({}, Path(sys.argv[1]), spawn=False)\n"
        "    server = fork_server(60).pid\n"
        "    environ = Path(f'/proc/{child.pid}/environ').read_bytes()\n"
        "    print(child.start_method, child.pid != server == started, b'MIOPEN_JUNK' in environ)\n"
        "    child.kill()\n"
        "    os.kill(server, signal.SIGKILL)\n"
        "    os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)\n",
    )
    assert done.stdout == "fork True False\n" * 2, done.stderr
    assert not done.stderr


def test_a_grandchild_in_a_session_of_its_own_ends_with_the_child(start: Start) -> None:
    child = start(
        "helper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        'os.write(events, b\'{"event": "phase", "phase": "helper%d"}\\n\' % helper.pid)\n'
        "time.sleep(600)"
    )
    event = child.event(60)
    assert isinstance(event, Phase)
    helper = Path("/proc") / event.phase.removeprefix("helper")
    assert child.kill() == "killed"
    assert wait_until(lambda: not helper.exists() or "Z (zombie)" in (helper / "status").read_text(), 10)


def test_a_child_that_reads_no_commands_holds_nobody_up(start: Start) -> None:
    child = start('os.write(events, b\'{"event": "phase", "phase": "on"}\\n\')\ntime.sleep(600)')
    assert child.event(60) == Phase("on")
    child.send(Case("cpu", "default", "copy", "x" * (1 << 20)), seconds=0.2)
    assert child.event(0.1) is None
    assert child.kill() == "killed"


@pytest.mark.thorough
def test_an_unkillable_child_does_not_keep_the_controller_from_ending(tmp_path: Path) -> None:
    # Nothing here survives SIGKILL, so the signals are held back.
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom pathlib import Path\nfrom rocmprobe.engine import child\n"
        "child._UNKILLABLE_AFTER = 0.2\n"
        "stuck = child.Child({}, Path(sys.argv[1]), spawn=False)\n"
        "stuck._signal_group = lambda number: None\n"
        "print(stuck.start_method, stuck.kill(grace=0.1), stuck.pid, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, program, tmp_path], capture_output=True, text=True, timeout=60, check=False
    )
    method, ending, pid = done.stdout.split()
    assert (method, ending, done.returncode) == ("fork", "unkillable", 0), done.stderr
    # It is stuck for this test only, and the fork server takes it along.
    assert wait_until(lambda: not Path(f"/proc/{pid}").exists(), 10)
