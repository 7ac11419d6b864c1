"""A log that holds the same program several times, as "before" and "after": which of its runs is explained.

Runs are told apart by the prompts of a shell before the same program, by nothing else: a traceback may follow
another one in one run, and words such as "works" and "fails" above a log are prose. Where the last run that
failed is known, the lines of the runs before it are left out, since the first attempt often failed for a
reason that is mended. What other commands printed between them stays.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import NamedTuple, Optional

from rocmprobe.explain.signatures import signatures
from rocmprobe.text.log import Line, Log

#: A prompt: of a POSIX shell, with or without user, folder and environment, of PowerShell, of cmd.exe.
_PROMPT = re.compile(
    r"""(?x) (?: \([\w.-]{1,40}\) \s? )?
        (?: \[? [\w.-]{1,40}@[\w.-]{1,60} [:\s] [^\n$\#>]{0,120} [$\#] | \$ | PS [ ] [A-Z]:\\[^\n>]{0,160}>
          | [A-Z]:\\[^\n>]{0,160}> ) \s* (?P<command> [\w./\\~"'$&].{0,400} )"""
)
#: What stands before the name of a program: variables and other programs.
_BEFORE = re.compile(
    r"""(?x) (?: (?: env | sudo | time | exec | nohup | \$env:\w+ \s? = \s? \S+ ; | set \s \w+=\S* \s? &&
        | [A-Za-z_]\w* = (?: "[^"]*" | '[^']*' | \S* ) ) \s+ )+"""
)
#: Programs that run what follows.
_RUNNERS = re.compile(
    r"(?:\S*[/\\])?(?:python[\d.]*(?:\.exe)?|py|torchrun|accelerate|uv|poetry|ba?sh)(?:\s+run|\s+launch|\s+-[mu])*$"
)


class Runs(NamedTuple):
    """``log`` without the runs before the last one that failed, and a ``note`` on it, where there are any."""

    log: Log
    note: Optional[str] = None


class _Prompt(NamedTuple):
    number: int
    program: Optional[str]


def last_failing_run(log: Log) -> Runs:
    """The part of a log that tells of the last failing run of a program that it holds more than once."""
    prompts = _prompts(log)
    times = Counter(prompt.program for prompt in prompts if prompt.program)
    program = next((name for name, count in times.most_common(1) if count > 1), None)
    if program is None:
        return Runs(log)
    starts = [prompt.number for prompt in prompts if prompt.program == program]
    ends = [next((p.number for p in prompts if p.number > start), log.total + 1) for start in starts]
    failing = [at for at, span in enumerate(zip(starts, ends)) if _fails(log, *span)]
    if not failing or failing[-1] == 0:
        return Runs(log)
    earlier = list(zip(starts, ends))[: failing[-1]]
    kept = tuple(_without(line, earlier) for line in log.lines)
    note = (
        f"The log holds several runs of {program}: explained is the last one that failed, from line "
        f"{starts[failing[-1]]} on."
    )
    return Runs(replace(log, lines=tuple(line for line in kept if line)), note)


def _prompts(log: Log) -> list[_Prompt]:
    """The prompts in their order. One that was printed more than twice is known where it stood first and
    last."""
    found = []
    for line in log.lines:
        if ("$" in line.text or ">" in line.text or "#" in line.text) and (match := _PROMPT.match(line.text)):
            program = _program(match["command"])
            found += [_Prompt(number, program) for number in sorted({line.number, line.last})]
    return sorted(found)


def _program(command: str) -> Optional[str]:
    """What a command runs, as it was named: "python train.py" whatever its options; None of a bare runner."""
    match = _BEFORE.match(command)
    words = command[match.end() if match else 0 :].split()
    for at, word in enumerate(words[:6]):
        if not _RUNNERS.match(" ".join(words[: at + 1])):
            return None if word.startswith("-") or at == 0 else " ".join(words[: at + 1])
    return None


def _fails(log: Log, start: int, end: int) -> bool:
    """Whether a line that tells why something failed stands between two prompts."""
    lines = [line for line in log.lines if start < line.number < end or start < line.last < end]
    return any(
        signature.kind == "fatal" and any(signature.regex.search(line.text) for line in lines)
        for signature in signatures()
    )


def _without(line: Line, earlier: list[tuple[int, int]]) -> Optional[Line]:
    """The line as it stands outside these runs; None where it stands nowhere else."""
    inside = any(start <= line.number < end for start, end in earlier)
    if not inside:
        return line
    if any(start <= line.last < end for start, end in earlier):
        return None
    return replace(line, number=line.last, count=max(1, line.count - 1))
