"""Measure which test executes which line: the part of ``mutants.py`` inside the processes of the tests.

``mutants.py`` copies this file into an environment of its own, where every Python imports it when it starts.
The variable ``LINE_MAP_COVERAGE`` switches coverage on, also in processes that a test starts.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Optional

#: Name of the running test. Not pytest's own variable, which the tests keep from the processes they start.
TEST = "LINE_MAP_TEST"
COVERAGE, SOURCE = "LINE_MAP_COVERAGE", "LINE_MAP_SOURCE"
_BECOME_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>


def coverage_init(registry: Any, _options: Any) -> None:
    """Register the plugin of coverage that names the context of each executed line."""
    from coverage import CoveragePlugin

    # Now: a test can take the variables away later.
    source = os.environ[SOURCE]

    class Contexts(CoveragePlugin):  # type: ignore[misc]
        def dynamic_context(self, frame: Any) -> Optional[str]:
            code = frame.f_code
            measured = code.co_name != "<module>" and code.co_filename.startswith(source)
            return os.environ.get(TEST) if measured else None

    registry.add_dynamic_context(Contexts())


def cover() -> None:
    """Measure this process until it ends."""
    import atexit

    import coverage

    measured = coverage.Coverage(
        os.environ[COVERAGE], data_suffix=True, source=[os.environ[SOURCE]], config_file=False
    )
    # In the process of the tests, Watch names the test. Contexts costs there what the tests cost.
    if TEST in os.environ:
        measured.set_option("run:plugins", [__name__])
    measured.set_option("run:disable_warnings", ["no-data-collected", "module-not-imported"])
    measured.start()
    atexit.register(measured.save)
    # A fork can lose the right to write, and most forks end without their exit functions.
    os.register_at_fork(after_in_child=lambda: (measured.stop(), atexit.unregister(measured.save)))


class Watch:
    """A pytest plugin that names the running test, times the tests and keeps the failures.

    No test starts after ``seconds``.
    """

    def __init__(self, seconds: float = float("inf")) -> None:
        self._ends = time.monotonic() + seconds
        self.failed: list[str] = []
        self.seconds: dict[str, float] = {}

    def pytest_sessionstart(self, session: Any) -> None:
        self._session = session

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        os.environ[TEST] = nodeid
        self._switch_context(nodeid)

    def pytest_runtest_logfinish(self) -> None:
        del os.environ[TEST]
        self._switch_context("")
        if time.monotonic() > self._ends:
            self._session.shouldstop = "no time left"

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        self._add(report)

    def pytest_collectreport(self, report: Any) -> None:
        self._add(report)

    @staticmethod
    def _switch_context(name: str) -> None:
        if COVERAGE in os.environ:
            import coverage

            current = coverage.Coverage.current()
            assert current
            current.switch_context(name)

    def _add(self, report: Any) -> None:
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)


def run_tests(arguments: list[str], seconds: float = float("inf")) -> dict[str, Any]:
    """Run pytest in one process. Return its exit code, the failed tests, and the time of each test."""
    import pytest

    watch = Watch(seconds)
    common = ["-n", "0", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    code = pytest.main([*common, *arguments], plugins=[watch])
    return {"code": int(code), "failed": watch.failed, "seconds": watch.seconds}


def serve() -> None:
    """Run tests for each line of standard input, in a fork of this process, which has imported torch."""
    import multiprocessing

    import hypothesis  # noqa: F401
    import torch  # noqa: F401

    forking = multiprocessing.get_context("fork")
    # Orphans of a killed test become children of this process, which ends them, too.
    ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1, 0, 0, 0)
    for line in sys.stdin:
        request = json.loads(line)
        receiver, sender = forking.Pipe(duplex=False)
        process = forking.Process(target=_attempt, args=(sender, request))
        process.start()
        sender.close()
        result: dict[str, Any] = {"code": "time limit", "failed": [], "seconds": {}}
        try:
            if receiver.poll(request["limit"]):
                result = receiver.recv()
        except EOFError:
            result["code"] = "death of the process"
        _end_children()
        print(json.dumps(result), flush=True)


def _attempt(sender: Any, request: dict[str, Any]) -> None:
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    sender.send(run_tests(request["arguments"], request["seconds"]))


def _end_children() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := children.read_text().split():
        for pid in map(int, pids):
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                continue


if os.environ.get(COVERAGE):
    cover()
