"""Parser for MIOpen's log: the chosen solver, and failures with their reasons.

Formats of lines:

- ``MIOpen(HIP): Info [Function] text``, possibly with a thread id and milliseconds
- ``MIOpen Error: file:line: text``, an error that MIOpen returned
- a C++ exception, caused by an error in a compile thread

Source: MIOpen 2.17 to 3.5 (src/logger.cpp, errors.hpp, ocl/convolutionocl.cpp, problem.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Optional, Union

from rocmprobe.knowledge.solvers import FORCE, names_by_id


@dataclass(frozen=True)
class Reading:
    """The implementation of the last convolution, and the errors, from the log of a vendor library.

    - ``algorithm``: GEMM, Direct, Winograd, ImplicitGEMM, FFT or naive
    - ``find_db``: "hit" or "miss" of the find database, which stores the fastest solvers
    - ``errors``: lines of the log, the most informative first
    """

    implementation: Optional[str] = None
    algorithm: Optional[str] = None
    workspace_bytes: Optional[int] = None
    find_db: Optional[str] = None
    errors: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


STATUSES = (
    "miopenStatusSuccess", "miopenStatusNotInitialized", "miopenStatusInvalidValue", "miopenStatusBadParm",
    "miopenStatusAllocFailed", "miopenStatusInternalError", "miopenStatusNotImplemented",
    "miopenStatusUnknownError", "miopenStatusUnsupportedOp", "miopenStatusGpuOperationsSkipped",
    "miopenStatusVersionMismatch",
)  # fmt: skip

#: Algorithm families by the number in the log of every convolution call (4 is no longer used).
_ALGORITHMS = {0: "GEMM", 1: "Direct", 2: "FFT", 3: "Winograd", 5: "ImplicitGEMM"}

#: Part of a solver's name that identifies its family. The first match counts.
_FAMILIES = (
    ("DirectNaive", "naive"), ("Wino", "Winograd"), ("ImplicitGemm", "ImplicitGEMM"),
    ("Igemm", "ImplicitGEMM"), ("Gemm", "GEMM"), ("fft", "FFT"), ("ConvAsm", "Direct"),
    ("ConvOcl", "Direct"), ("ConvDirect", "Direct"), ("ConvHipDirect", "Direct"),
)  # fmt: skip

_LEVELS = "Fatal|Error|Warning|Info2|Info|Trace|Command"
# "[^][]" stops at the next bracket. With ".", a long line that repeats "MIOpen(HIP): Info [" would take
# quadratic time.
_MESSAGE = re.compile(rf"MIOpen\((\w+)\)\s*(?:[\d.]+)?: ({_LEVELS}) \[([^][]*)\] ?(.*)")
#: A log line without its beginning, because users often quote lines in this form.
_HEADLESS = re.compile(rf"\s*()({_LEVELS}) \[(\w+)\] (.*)")
_API_ERROR = re.compile(r"MIOpen Error: (.*)")
_EXCEPTION = re.compile(r"what\(\): +(.*)")
#: "file:line: text". MIOpen 3.5 prints the name of the machine in front.
_PLACE = re.compile(r"(?:[\w.-]{2,253}:)?(\S+\.[ch]pp:\d+): (.*)")
#: Messages of a compiler, an assembler or a shell about a kernel that it cannot build.
_DIAGNOSTIC = re.compile(
    r":\d+:\d+: (?:fatal )?error: |^sh: (?:line )?\d+: .*: (?:not found|No such file or directory)$"
)

_CHOSEN = re.compile(r"Chosen Algorithm: ([^\s,]+)(?:\s*,\s*(\d+),\s*(\S+))?")
_SOLVER_ID = re.compile(r"solver_id = ([^\s,]+)(?:, workspace = (\d+))?")
_ALGORITHM = re.compile(r"algo = (\d+)")
_SOLUTION = re.compile(r"id: \d+, algo: \d+, time: (\S+), ws: (\d+), name: (\S+)")
#: Message of Find 2.0 for each solver that it found. The fastest solver comes first.
_FOUND = re.compile(r"Found (?:a )?sol\w+: (\S+) , (\d+), (\S+)")
#: Message of Find 2.0 for each algorithm that it found. Find 2.0 then prepares the solvers in the same order.
_LISTED = re.compile(r"miopen[A-Za-z]{1,40}?Algo([A-Z][A-Za-z]{1,20})\s(\S+)\s(\d+)$")
_DRIVER_CHOICE = re.compile(r"MIOpen [\w ]+ Conv\. Algorithm: -?\d+, Solution: \d+/(\S+)")
_DRIVER_TIME = re.compile(r"GPU Kernel Time .* Conv\. Elapsed: (\S+) ms")
_FIND_MODE = re.compile(r"MIOPEN_FIND_MODE = (\w+)")
_COMMAND = re.compile(r"MIOpenDriver(?:\.exe)? \w+ -.*")
_CALL = re.compile(r"(?:\[[\d.]+\] )?(miopen[A-Z]\w*)(?:\(.*\) ->| rc) (\d+)\b")
_STATUS = re.compile(r"miopenStatus[A-Z]\w*")

_SOURCES = (
    re.compile(r"Code object build failed\. Source: (\S+)"),
    re.compile(r"source file: (\S+)"),
    re.compile(r"' (\S+): HIPRTC_ERROR"),
    re.compile(r"Failed to load kernel source: (\S+)"),
    re.compile(r"Failed to get function: \S+ from (\S+)"),
    re.compile(r"^Failed cmd: .* (\S+) -o "),
    re.compile(r"Cant find file: (\S+)\.o$"),
)
#: Messages which mean that no solver can run the problem. Two are from Find, and one is from immediate mode.
_NO_SOLVER = re.compile(
    "No suitable algorithm was found|cannot be executed due to incorrect params"
    "|Immediate mode Fallback unsuccessful"
)
#: Errors after which MIOpen continues: a missing assembler, and invalid records of the find database. For
#: example, MIOpen 3.5 writes an empty record if a search fails.
_PASSED_OVER = re.compile(
    r"Path to assembler is not provided|^Error parsing payload under the key|^Contents:"
)


@dataclass(frozen=True)
class Message:
    """One message of MIOpen. ``place`` is the "file:line" of an exception."""

    level: str
    function: Optional[str]
    text: str
    backend: Optional[str] = None
    place: Optional[str] = None
    line: str = ""


@dataclass(frozen=True)
class Status:
    """A status other than success that MIOpen returned."""

    name: str
    number: Optional[int]
    call: Optional[str] = None


@dataclass(frozen=True)
class ChosenSolver:
    """The solver that MIOpen chose for a convolution.

    - ``algorithm``: GEMM, Direct, Winograd, ImplicitGEMM, FFT or naive
    - ``find_db``: "hit" if the solver was in the find database, "miss" if not, None if unknown
    """

    solver: Optional[str]
    algorithm: Optional[str]
    workspace_bytes: Optional[int] = None
    milliseconds: Optional[float] = None
    find_db: Optional[str] = None


@dataclass(frozen=True)
class MiopenLog:
    """A parsed log.

    - ``failures``: lines about failures, the most informative first
    - ``sources``: names of the kernel files in ``failures``
    """

    messages: tuple[Message, ...] = ()
    choice: Optional[ChosenSolver] = None
    statuses: tuple[Status, ...] = ()
    failures: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def family(solver: str) -> Optional[str]:
    """Return the algorithm family in a solver's name, or None."""
    return next((name for part, name in _FAMILIES if part in solver), None)


def reason_not_tested(solver: str, state: str, reading: Reading) -> Optional[str]:
    """Return the reason why MIOpen did not run ``solver``, the only solver that the case allowed.

    Return None if MIOpen ran ``solver``.
    """
    if state == "error" and any(f"Invalid value of {FORCE}" in line for line in reading.errors):
        return f"this MIOpen does not know {solver}"
    if had_no_solver(state, reading):
        return f"{solver} does not apply to this problem"
    if state in ("pass", "wrong") and reading.implementation not in (None, solver):
        return f"MIOpen ran {reading.implementation} in its place"
    return None


def had_no_solver(state: str, reading: Reading) -> bool:
    """Return True if a case failed only because MIOpen had no solver for the problem."""
    return (
        state == "error" and bool(reading.errors) and all(_NO_SOLVER.search(line) for line in reading.errors)
    )


def parse(text: str) -> MiopenLog:
    """Parse the output of a program that uses MIOpen. Never raise an exception."""
    lines = [line.strip() for line in text.splitlines()]
    messages = tuple(message for message in map(_message, lines) if message)
    failures = _failures(lines, messages)
    commands = [match[0] for line in lines if (match := _COMMAND.search(line))]
    return MiopenLog(
        messages=messages,
        choice=_choice_of(_choice(messages), _driver_choice(lines)),
        statuses=_statuses(lines),
        failures=tuple(message.line for message in failures),
        sources=_sources(failures),
        commands=tuple(dict.fromkeys(commands)),
    )


def _message(line: str) -> Optional[Message]:
    logged = _MESSAGE.search(line) or _HEADLESS.match(line)
    if logged:
        place, text = _placed(logged[4])
        return Message(logged[2], logged[3], text, logged[1] or None, place, line)
    left = _API_ERROR.search(line)
    if not left and "iopen" in line.lower():
        left = _EXCEPTION.search(line)
    if left:
        place, text = _placed(left[1])
        return Message("Error", None, text, None, place, line)
    if "terminate called" in line and "miopen::" in line:
        return Message("Fatal", None, line, None, None, line)
    return _bare_exception(line)


def _placed(text: str) -> tuple[Optional[str], str]:
    match = _PLACE.match(text)
    return (match[1], match[2]) if match else (None, text)


def _bare_exception(line: str) -> Optional[Message]:
    for word in line.split(" ", 2)[:2]:
        path, _, number = word.rstrip(":").rpartition(":")
        own = "miopen" in path.lower() or "mlopen" in path.lower()
        if own and number.isdigit() and path.endswith((".cpp", ".hpp")):
            return Message("Error", None, line.partition(word)[2].strip(), None, f"{path}:{number}", line)
    return None


def _number(text: Optional[str]) -> Optional[float]:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _bytes(text: Optional[str]) -> Optional[int]:
    """Return the number in ``text``, or None if ``text`` is empty or has 20 or more digits."""
    # ``int`` raises an error for numbers with thousands of digits.
    return int(text) if text and len(text) < 20 else None


def _choice(messages: Iterable[Message]) -> Optional[ChosenSolver]:
    choice: Optional[ChosenSolver] = None
    mode: Optional[str] = None
    find_db: Optional[str] = None
    fastest: Optional[ChosenSolver] = None
    listed: Optional[ChosenSolver] = None
    times: dict[str, Optional[float]] = {}
    for message in messages:
        text, function = message.text, message.function or ""
        if match := _FIND_MODE.match(text):
            mode = match[1]
        elif function == "GetSolutionsFallback" or text == "Find-db regenerating.":
            find_db = "miss"
        elif function.startswith("Get") and (match := _SOLUTION.match(text)):
            find_db, times[match[3]] = "hit", _number(match[1])
        elif match := _CHOSEN.search(text):
            choice = _chosen(match[1], match[2], _number(match[3]), _find_db_result(find_db, mode))
            find_db = fastest = listed = None
        elif function == "FindConvolution" and (match := _LISTED.match(text)):
            if listed is None:
                time = _number(match[2])
                choice = listed = ChosenSolver(
                    None, match[1], _bytes(match[3]), time, _find_db_result(find_db, mode)
                )
        elif listed and function == "FindSolutionImpl" and family(text.partition(" ")[0]):
            solver = text.partition(" ")[0]
            choice = replace(listed, solver=solver, algorithm=family(solver))
            find_db = listed = None
        elif match := _FOUND.match(text):
            time = _number(match[3])
            if fastest is None or (time or 0.0) < (fastest.milliseconds or 0.0):
                choice = fastest = _chosen(match[1], match[2], time, find_db)
        elif match := _SOLVER_ID.match(text):
            solver = solver_name(match[1])
            choice = _chosen(solver, match[2], times.get(solver), find_db)
        elif choice is None and function.startswith("Convolution") and (match := _ALGORITHM.match(text)):
            # The search ran before this log began, so only the algorithm family is known.
            choice = ChosenSolver(None, _ALGORITHMS.get(_bytes(match[1]) or 0))
    return choice


def _find_db_result(find_db: Optional[str], mode: Optional[str]) -> Optional[str]:
    """Return ``find_db``, or "hit" if the log has no result and the find mode is HYBRID."""
    # In HYBRID modes MIOpen searches only if the database has no record, and it logs every search.
    return "hit" if find_db is None and mode in ("HYBRID", "DYNAMIC_HYBRID") else find_db


def solver_name(solver: Union[str, int]) -> str:
    """Return the name of a solver, given its name or number."""
    text = str(solver)
    return names_by_id().get(_bytes(text) or 0, text) if text.isdecimal() else text


def _chosen(
    solver: str, workspace: Optional[str], milliseconds: Optional[float], find_db: Optional[str]
) -> ChosenSolver:
    name = solver_name(solver)
    return ChosenSolver(name, family(name), _bytes(workspace), milliseconds, find_db)


def _choice_of(logged: Optional[ChosenSolver], of_driver: Optional[ChosenSolver]) -> Optional[ChosenSolver]:
    """Return the solver that MIOpen logged, or the solver that MIOpenDriver printed if the two differ."""
    # MIOpen's log has more details than the output of MIOpenDriver.
    return of_driver if of_driver and (not logged or logged.solver != of_driver.solver) else logged


def _driver_choice(lines: Iterable[str]) -> Optional[ChosenSolver]:
    """Return the last solver that MIOpenDriver printed, or None."""
    choice: Optional[ChosenSolver] = None
    for line in lines:
        if match := _DRIVER_CHOICE.match(line):
            choice = ChosenSolver(match[1], family(match[1]))
        elif choice and (match := _DRIVER_TIME.match(line)):
            choice = replace(choice, milliseconds=_number(match[1]))
    return choice


def _statuses(lines: Iterable[str]) -> tuple[Status, ...]:
    statuses: dict[Status, None] = {}
    for line in lines:
        if match := _CALL.match(line):
            number = _bytes(match[2]) or 0
            name = STATUSES[number] if number < len(STATUSES) else f"miopenStatus {number}"
            statuses[Status(name, number, match[1])] = None
        else:
            for name in _STATUS.findall(line):
                statuses[Status(name, STATUSES.index(name) if name in STATUSES else None)] = None
    return tuple(status for status in statuses if status.number != 0)


def _failures(lines: Iterable[str], messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the failures, the most informative first."""
    left = [message for message in messages if message.function is None]
    logged = [
        message
        for message in messages
        if message.function is not None
        and message.level in ("Fatal", "Error")
        and not _PASSED_OVER.search(message.text)
    ]
    said = [Message("Error", None, line, line=line) for line in lines if _DIAGNOSTIC.search(line)]
    caught = [message for message in messages if message.level == "Warning" and message.place]
    unbuilt = bool(_sources([*left, *logged]))
    # If a kernel could not be built, the messages of the compiler have the most details.
    ordered = [*said, *left, *logged] if unbuilt else [*left, *logged, *said]
    return tuple({message.line: message for message in [*ordered, *caught]}.values())


def _sources(failures: Iterable[Message]) -> tuple[str, ...]:
    paths = [
        match[1] for message in failures for pattern in _SOURCES if (match := pattern.search(message.text))
    ]
    return tuple(dict.fromkeys(path.rpartition("/")[2] for path in paths))
