"""Messages between a session and its worker processes, each a line of JSON.

The session sends a ``Spec`` and then cases. The worker sends events.
"""

from __future__ import annotations

import json
from typing import Any, Optional, Union

import msgspec

from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.model.results import Setting
from rocmprobe.text.reading import json_line


class Spec(msgspec.Struct, frozen=True):
    """The first message to a worker.

    - ``seconds``: duration of one measurement
    - ``first``: case for which the worker is started
    - ``threads``: number of CPU threads for kernels, or 0 for torch's default
    - ``simulated``: a ``SimulatedMachine``, as plain data in the worker. A worker on a real device does not
      import the simulation.
    - ``soak``: duration of the check soak in seconds
    """

    device: str
    backend: str
    setting: Setting
    seconds: float
    environ: dict[str, str] = {}
    first: Optional[Case] = None
    simulated: Any = None
    threads: int = 0
    soak: float = 60.0


class Event(msgspec.Struct, frozen=True, tag_field="event"):
    """A message of a worker."""


class Ready(Event, frozen=True, tag="ready"):
    """The worker can run cases. ``mapped`` is as in ``results.Trial``."""

    library: Optional[str] = None
    mapped: dict[str, list[str]] = {}


class Unusable(Event, frozen=True, tag="unusable"):
    """The worker cannot run cases, e.g. because the import of torch failed."""

    message: str


class Phase(Event, frozen=True, tag="phase"):
    """The phase of the case that begins now."""

    phase: str


class Repetition(Event, frozen=True, tag="repetition"):
    """The repetition of the case that begins now, counted from 1."""

    number: int


class Measuring(Event, frozen=True, tag="measuring"):
    """The point of time "before" or "after" a measurement."""

    when: str


class Preliminary(Event, frozen=True, tag="preliminary"):
    """The result that counts if the process dies in the phase ``yardstick``."""

    result: CheckResult


class Answer(Event, frozen=True, tag="answer"):
    """All attempts of a case. ``poisoned`` is True if the worker cannot run another case."""

    attempts: list[CheckResult]
    poisoned: bool
    mapped: dict[str, list[str]] = {}


_AnyEvent = Union[Ready, Unusable, Phase, Repetition, Measuring, Preliminary, Answer]


def encode(message: Union[Spec, Case, Event]) -> bytes:
    """Return a message as a line of JSON."""
    # msgspec's own encoder fails on half a surrogate pair, which an environment variable can contain.
    return json.dumps(msgspec.to_builtins(message)).encode() + b"\n"


def decode_event(line: bytes) -> Optional[Event]:
    """Return the event in a line, or None if a library or a simulated fault wrote the line."""
    data: Any = json_line(line)
    try:
        event: Event = msgspec.convert(data, _AnyEvent)
    except msgspec.ValidationError:
        return None
    return event
