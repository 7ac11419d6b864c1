"""A line for each question as it is settled, in place of pytest's own terminal output."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

_STYLES = {"pass": "green", "slow": "yellow", "xpass": "yellow", "flaky": "yellow"}
_QUIET = ("blocked", "n/a", "skipped", "xfail")


class Progress:
    """A pytest plugin; prints to ``console`` and counts the states."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._states: Counter[str] = Counter()
        self._started = time.monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._console.print(f"{len(session.items)} questions to this machine")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found: dict[str, Any] = dict(report.user_properties).get("rocmprobe", {})  # type: ignore[assignment]
        if report.when != "setup" or not found:
            return
        state = found["state"]
        self._states[state] += 1
        style = _STYLES.get(state, "dim" if state in _QUIET else "bold red")
        line = Text(f"[{state}]".ljust(12), style=style).append(found["id"], style="default")
        if state != "pass" and found["evidence"]:
            line.append(f"  {found['evidence'][0]}"[:120], style="dim")
        self._console.print(line, soft_wrap=True)

    def pytest_sessionfinish(self) -> None:
        if self._states:
            counts = ", ".join(f"{count} {state}" for state, count in self._states.most_common())
            self._console.print(f"{counts}; {time.monotonic() - self._started:.0f} s")
