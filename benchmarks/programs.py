"""Compare programs under `rocmprobe exec` and `shapes` to the bare program: exit status, output and start.

Each program runs bare, then under each command, with the same input and the same signals. The column
"same" says if the exit status, stdout and stderr (without rocmprobe's own lines) are the same::

    python benchmarks/programs.py -o benchmarks/results/programs.md
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pty
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from figures import heading, publish, table

PYTHON = sys.executable
OWN = [PYTHON, "-m", "rocmprobe"]
COMMANDS = {
    "exec": [*OWN, "exec", "--bypass", "always", "--"],
    "exec --explain": [*OWN, "exec", "--bypass", "always", "--explain", "--"],
    "shapes": [*OWN, "shapes", "-o", "shapes.json", "--"],
}
#: rocmprobe's own lines on stderr. The explanation of a failure is the last part.
_OWN_LINES = re.compile(
    rb"rocmprobe: running under [^\n]*\n|rocmprobe: (?:no|\d+) problem\(s\)[^\n]*\n"
    rb"|rocmprobe: the program failed[^\n]*\n|rocmprobe: the program ended with .*",
    re.DOTALL,
)
#: Seconds after which a program hangs.
_HUNG = 120.0
#: Counts the signals that arrive within 0.3 s of the first one.
COUNTS = """
import os, signal, sys, time
seen = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGWINCH,
               signal.SIGRTMIN):
    signal.signal(number, lambda number, frame: seen.append(number))
{before}
print("ready", flush=True)
while not seen:
    time.sleep(0.01)
time.sleep(0.3)
print(*map(int, seen), flush=True)
"""


@dataclass(frozen=True)
class Ending:
    """How a program ended, and what it printed."""

    status: int
    out: str
    err: bytes


def python(text: str, *arguments: str) -> list[str]:
    return [PYTHON, "-c", text, *arguments]


@dataclass(frozen=True)
class Program:
    """A program, and ``act``, which is called with the process when the program has printed "ready"."""

    command: Sequence[str]
    act: Callable[[subprocess.Popen[bytes]], None] | None = None
    prepare: Callable[[], None] | None = None

    def run(self, words: Sequence[str], folder: Path) -> Ending:
        started = time.perf_counter()
        (folder / "input").write_text("given\n")
        (folder / "ended").unlink(missing_ok=True)
        with open(folder / "input") as given:
            process = subprocess.Popen(
                [*words, *self.command], cwd=folder, stdin=given, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True, bufsize=0,
                preexec_fn=self.prepare,  # noqa: PLW1509 - there is no thread
            )  # fmt: skip
        digest, size, head, err = hashlib.sha256(), 0, b"", bytearray()
        streams = {process.stdout.fileno(), process.stderr.fileno()}  # type: ignore[union-attr]
        act = self.act
        while streams:
            for each in select.select(streams, [], [], 0.02)[0]:
                data = os.read(each, 1 << 20)
                if not data:
                    streams.discard(each)
                elif each == process.stderr.fileno():  # type: ignore[union-attr]
                    err += data
                else:
                    digest.update(data)
                    size += len(data)
                    head = (head + data)[:1000]
            if act and b"ready\n" in head:
                act(process)
                act = None
            if process.poll() is not None:
                (folder / "ended").touch()
            if time.perf_counter() > started + _HUNG:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                break
        status = process.wait()
        out = head.decode("utf-8", "replace") if size < 1000 else f"{size} bytes, {digest.hexdigest()[:8]}"
        said = _OWN_LINES.sub(b"", err)
        if len(said) > 1000:
            said = b"%d bytes, %s" % (len(said), hashlib.sha256(said).hexdigest()[:8].encode())
        return Ending(status, out, said)


def alone(number: int) -> Callable[[subprocess.Popen[bytes]], None]:
    return lambda process: os.kill(process.pid, number)


def group(number: int) -> Callable[[subprocess.Popen[bytes]], None]:
    return lambda process: os.killpg(process.pid, number)


class Terminal(Program):
    """A program in a terminal: Ctrl-Z stops the job, the shell continues it, Ctrl-C reaches it once."""

    def run(self, words: Sequence[str], folder: Path) -> Ending:
        shell, terminal = pty.fork()
        if shell == 0:
            os._exit(_job([*words, *self.command], folder))
        shown = b""
        keys = [(b"ready\r\n", b"\x1a"), (b"continued\r\n", b"\x03")]
        # At the end of the shell, the terminal is closed.
        with suppress(OSError):
            while data := os.read(terminal, 1000):
                shown += data
                if keys and keys[0][0] in shown:
                    os.write(terminal, keys.pop(0)[1])
                if not select.select([terminal], [], [], _HUNG)[0]:
                    os.kill(shell, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(shell, 0)[1])
        os.close(terminal)
        out = b"".join(line for line in shown.splitlines(True) if not line.startswith(b"rocmprobe: "))
        return Ending(status, out.decode(), b"")


def _job(words: Sequence[str], folder: Path) -> int:
    """Run a job in its own group, as a shell with job control does. Return the job's exit status."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.chdir(folder)
        os.execv(words[0], list(words))  # noqa: S606 - the arguments are fixed
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status) % 256
        os.tcsetpgrp(0, os.getpid())
        os.write(1, b"stopped by %d\n" % os.WSTOPSIG(status))
        time.sleep(0.2)
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)
        os.write(1, b"continued\n")


def _close(*descriptors: int) -> Callable[[], None]:
    return lambda: [os.close(each) for each in descriptors] and None


FORKS = """
import os
for number in range(50):
    child = os.fork() or os._exit(os.write(1, b"%02d\\n" % number))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
"""
OPEN = "import os, sys; sys.exit(sum(1 << n for n in (0, 1, 2, 5) if os.path.exists(f'/proc/self/fd/{n}')))"
#: A daemon that keeps the streams, and writes after the program has ended (file "ended").
DAEMON = (
    "(trap '' HUP; until [ -e ended ]; do sleep 0.05; done; echo late; echo late >&2) & "
    "echo now; echo now >&2"
)
MOVES = "os.setpgid(0, 0) if os.getpgrp() != os.getpid() else None"
SETSID = "import os, sys; print(os.getsid(0) == os.getpid(), os.getppid() > 1); sys.exit(6)"


def programs(megabytes: int) -> dict[str, Program]:
    once = python(COUNTS.format(before=""))
    return {
        "arguments, input, exit code 7": Program(
            python("import sys; print(sys.argv, sys.stdin.read()); sys.exit(7)", "-o", "--", "--bypass")
        ),
        **{
            f"{signal.Signals(number).name} to the process": Program(once, alone(number))
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGWINCH)
        },
        "a real-time signal to the process": Program(once, alone(signal.SIGRTMIN)),
        **{
            f"{signal.Signals(number).name} to the group": Program(once, group(number))
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
        },
        "SIGKILL to the process": Program(
            python("import time; print('ready', flush=True); time.sleep(2); print('survived')"),
            alone(signal.SIGKILL),
        ),
        "SIGUSR2 ends it": Program(python("print('ready', flush=True); import signal; signal.pause()"),
                                   alone(signal.SIGUSR2)),
        "a daemon that keeps stdout and stderr": Program(["sh", "-c", DAEMON]),
        "50 forked children": Program(python(FORKS)),
        "stdin and stdout closed": Program(python(OPEN), prepare=_close(0, 1)),
        "stderr closed": Program(python(OPEN), prepare=_close(2)),
        "descriptor 5 inherited": Program(python(OPEN), prepare=lambda: os.dup2(1, 5) and None),
        f"{megabytes} MB on stdout": Program(["sh", "-c", f"head -c {megabytes}M /dev/zero | tr '\\0' x"]),
        f"{megabytes // 20} MB on stderr": Program(
            ["sh", "-c", f"head -c {megabytes // 20}M /dev/zero | tr '\\0' x >&2"]
        ),
        "os._exit(9)": Program(python("import os; os.write(1, b'said'); os._exit(9)")),
        "SIGSEGV": Program(["sh", "-c", "ulimit -c 0; kill -SEGV $$"]),
        "the program kills itself": Program(["sh", "-c", "kill -KILL $$"]),
        "Ctrl-Z, fg and Ctrl-C in a terminal": Terminal(once),
        "setsid": Program(["setsid", "-w", *python(SETSID)]),
        "own process group, then SIGTERM": Program(
            python(COUNTS.format(before=MOVES)), alone(signal.SIGTERM)
        ),
        "own process group, then SIGINT to the first group": Program(
            python(COUNTS.format(before=MOVES)), group(signal.SIGINT)
        ),
    }  # fmt: skip


def differences(bare: Ending, found: Ending) -> list[str]:
    """Return the parts of ``found`` that differ from the ending of the bare program."""
    return [name for name, value in vars(bare).items() if value != getattr(found, name)]


def start_up(words: Sequence[str], folder: Path, turns: int) -> float:
    """Return the median number of milliseconds of a program that does nothing."""
    seconds = []
    for _ in range(turns):
        started = time.perf_counter()
        subprocess.run([*words, "true"], cwd=folder, check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return 1000 * statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--turns", type=int, default=11)
    parser.add_argument("--only", default="", help="Run only programs whose name contains this text.")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows, differ = [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, program in programs(options.megabytes).items():
            if options.only not in title:
                continue
            bare = program.run((), folder)
            cells = []
            for command, words in COMMANDS.items():
                found = program.run(words, folder)
                wrong = differences(bare, found)
                if wrong:
                    print(f"{title}, {command}: {bare}, {found}", file=sys.stderr)
                differ += bool(wrong)
                cells.append(", ".join(wrong) or "same")
            rows.append((title, str(bare.status), *cells))
        bare_ms = start_up((), folder, options.turns)
        costs = [f"{start_up(words, folder, options.turns) - bare_ms:.0f} ms" for words in COMMANDS.values()]
        rows.append(("start-up cost", "", *costs))
    lines = [
        *heading(
            "Programs under exec and shapes", f"python benchmarks/programs.py --megabytes {options.megabytes}"
        ),
        f"{differ} of {(len(rows) - 1) * len(COMMANDS)} differ from the bare program.",
        "",
        *table(("program", "exit status", *COMMANDS), rows),
    ]
    publish(lines, options.output)


if __name__ == "__main__":
    main()
