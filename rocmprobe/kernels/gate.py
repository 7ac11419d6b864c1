"""Gate that decides whether the kernels may run on this machine.

A kernel may run only after it passed a self-test on this machine. The verdict names these kernels. It is
stored in the cache folder, in one file for each combination of chip, effective ISA, runtime, source and
dtype. A self-test that froze the machine counts as failed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

from rocmprobe import output
from rocmprobe.lifetime import is_running

VARIABLE = "ROCMPROBE_BYPASS_KERNELS"
_VERSION = 2
#: Seconds for the whole self-test, including compilation.
TIME_LIMIT = 180
#: Seconds after which the child ends itself. The parent's limit is shorter, so usually the parent kills the
#: child and reports the parent's limit.
CHILD_LIMIT = TIME_LIMIT + 10
#: Maximum number of stored characters of a self-test's output.
_LOG_BYTES = 20_000


@dataclass(frozen=True)
class KernelVerdict:
    """Verdict on the kernels of one dtype on one device.

    Attributes:
        state: "passed", "failed", "began" (the self-test may still run), or "untried".
        reason: why the self-test failed.
        log: log of the self-test, or the end of the child's output.
        process: id of the process that started the self-test.
        kernels: names of the kernels that gave exact results.
    """

    state: str
    reason: str = ""
    log: str = ""
    process: int = 0
    kernels: tuple[str, ...] = ()

    def refusal(self) -> str:
        """Return the reason why the kernels must not be used, or "" if they can be used."""
        if self.state == "passed":
            return ""
        if self.state == "began":
            return "another process is testing the kernels"
        if self.state == "untried":
            return f"not tested on this machine yet: run `rocmprobe run`, or set {VARIABLE}=1"
        return self.reason


def read(folder: Optional[Path], identity: Mapping[str, str]) -> KernelVerdict:
    """Return the verdict in ``folder`` for ``identity``. Without a valid verdict, the state is "untried".

    If a self-test began and its process no longer exists, the state is "failed".
    """
    if folder is None:
        return KernelVerdict("untried")
    try:
        record = json.loads(_path(folder, identity).read_text("utf-8"))
        if record["version"] != _VERSION or record["identity"] != dict(identity):
            return KernelVerdict("untried")
        verdict = _parsed(record["verdict"])
        if verdict.state not in ("passed", "failed", "began"):
            return KernelVerdict("untried")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return KernelVerdict("untried")
    if verdict.state == "began" and not is_running(verdict.process):
        return KernelVerdict(
            "failed", reason="the self-test did not finish: it was stopped, or it froze the machine"
        )
    return verdict


def write(folder: Optional[Path], identity: Mapping[str, str], verdict: KernelVerdict) -> None:
    """Write a verdict atomically. Do nothing if ``folder`` is None or cannot be written."""
    if folder is None:
        return
    path = _path(folder, identity)
    record = {"version": _VERSION, "identity": dict(identity), "verdict": asdict(verdict)}
    with suppress(OSError):
        output.make_folder(folder)
        # The file must reach the disk, because the machine may freeze during the self-test.
        output.write(path, json.dumps(record).encode(), force=True)


def tried_in_child(command: list[str], time_limit: float = TIME_LIMIT) -> KernelVerdict:
    """Run Python with the arguments ``command``, and parse the verdict from the last line of the output.

    If the output has no verdict, the state is "failed". The child is killed after ``time_limit`` seconds.
    """
    package = str(Path(__file__).parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), VARIABLE: "0"}
    child = subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env=environment, start_new_session=True,
    )  # fmt: skip
    started = time.monotonic()
    try:
        output, _ = child.communicate(timeout=time_limit)
    except subprocess.TimeoutExpired:
        child.kill()
        try:
            output, _ = child.communicate(timeout=5)
        except subprocess.TimeoutExpired as still:
            output = still.output or b""
        text = output.decode("utf-8", "replace")
        return KernelVerdict(
            "failed", reason=f"the self-test did not finish in {time_limit:.0f} s", log=text[-_LOG_BYTES:]
        )
    except BaseException:
        child.kill()
        raise
    text = output.decode("utf-8", "replace")
    try:
        return _parsed(json.loads(text.strip().rpartition("\n")[2]))
    except (ValueError, TypeError, KeyError):
        seconds = time.monotonic() - started
        ended = f"signal {-child.returncode}" if child.returncode < 0 else f"exit code {child.returncode}"
        return KernelVerdict(
            "failed",
            reason=f"the self-test ended without a result ({ended}, after {seconds:.0f} s)",
            log=text[-_LOG_BYTES:],
        )


def to_line(verdict: KernelVerdict) -> str:
    """Format a verdict as one line for :func:`tried_in_child`."""
    return json.dumps(asdict(verdict))


def _parsed(fields: dict[str, Any]) -> KernelVerdict:
    return KernelVerdict(**{**fields, "kernels": tuple(fields["kernels"])})


def _path(folder: Path, identity: Mapping[str, str]) -> Path:
    name = "-".join(identity.values())
    return folder / ("verdict-" + re.sub(r"[^A-Za-z0-9.+]+", "-", name) + ".json")


def chosen(environ: Mapping[str, str]) -> Any:
    """Return the user's choice in ``ROCMPROBE_BYPASS_KERNELS``: "off" (0), "if-passed" (unset) or "try" (1).

    Raises:
        ValueError: if the variable has another value.
    """
    text = environ.get(VARIABLE, "")
    try:
        return {"": "if-passed", "0": "off", "1": "try"}[text]
    except KeyError:
        raise ValueError(f"{VARIABLE}={text}: set 0 or 1, or leave it unset") from None
