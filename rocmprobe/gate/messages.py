"""What the process that asks tells the one that keeps the time: JSON lines on a pipe."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional


@dataclass(frozen=True)
class Order:
    """What to check. ``results`` is a file or a folder, None for the last complete run or else none;
    ``setting`` "" is the one that the results recommend, or ``default``. ``budget`` is in seconds."""

    results: Optional[Path] = None
    device: str = "auto"
    setting: str = ""
    simulate: str = ""
    budget: float = 50.0


class Pipe:
    """The writing end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def tell(self, event: str, **content: Any) -> None:
        """Write one line."""
        data = json.dumps({"event": event, **content}).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]

    def forward(self, record: Mapping[str, Any]) -> None:
        """Write the records of a journal that concern the time limit: progress, and a device that is gone."""
        if record["record"] == "waiting":
            self.tell("waiting", phase=record["phase"])
        elif record["record"] == "wedged":
            self.tell("wedged")


@dataclass
class Seen:
    """What came so far. ``ended`` is how the check came to its end: "over" (the other process said all that
    it had to say), "time", "signal" or "died". ``unkillable``: a process stayed after SIGKILL. ``moved`` is
    when (monotonic) a starting worker read something last."""

    facts: dict[str, Any] = field(default_factory=dict)
    planned: list[str] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    asking: str = ""
    phase: str = ""
    over: dict[str, Any] = field(default_factory=dict)
    ended: str = ""
    unkillable: bool = False
    moved: Optional[float] = None
    seconds: float = 0.0

    def take(self, message: Mapping[str, Any], now: float) -> None:
        """Take in one message that came at ``now`` (monotonic)."""
        event = message.get("event")
        content = {key: value for key, value in message.items() if key != "event"}
        if event == "facts":
            self.facts.update(content)
        elif event == "plan":
            self.planned = list(content["ids"])
        elif event == "asking":
            self.asking, self.phase = content["id"], ""
        elif event == "waiting":
            self.phase = content["phase"]
        elif event == "answer":
            self.answers.append({**content, "ended": now})
            self.asking = ""
        elif event == "wedged":
            self.unkillable = True
        elif event == "over":
            self.over, self.ended = content, "over"
