"""Stacks for a chip, the best first, with the reasons why some stacks fail."""

from __future__ import annotations

import re
from calendar import month_name
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.compatibility import Answer, Combination, answers, failing
from rocmprobe.knowledge.stacks import (
    Broken,
    CodeLoan,
    DatedRow,
    Installed,
    Limit,
    Report,
    Stack,
    Tested,
    code_loans,
    has_code,
    is_outdated,
    known_to_break,
    limits,
    publisher_tests,
    reports,
    stacks,
)
from rocmprobe.text.plain_text import sentence_case
from rocmprobe.text.versions import version_numbers

#: Description of each state of a stack on a chip.
STATUSES = {
    "works": "owners report that it works",
    "tested": "its publisher runs tests on this chip",
    "listed": "the chip is in AMD's list of supported GPUs",
    "partly": "owners report that it runs, with limits",
    "unverified": "reported, but not checked for more than a year",
    "untested": "published, but untested: no report of it on this chip was found",
    "fails": "reported to fail",
}
_RANKS = {"works": 0, "tested": 0, "listed": 1, "partly": 2, "unverified": 3, "untested": 4, "fails": 9}
#: Kinds of stacks whose libraries are built by AMD. [[library]] in data/compatibility.toml describes these
#: libraries.
_PUBLISHED = ("official", "amd-stable", "amd-nightly")
#: If one of these relations does not hold, only a library is limited. The stack still works.
_LIBRARIES = ("hipblaslt-has-kernels", "miopen-has-databases")
_LISTED = re.compile(r"(\d+(?:\.\d+)+) and newer")


@dataclass(frozen=True)
class Option:
    """A stack on a chip.

    - ``tested``: set if the status is "tested"
    - ``lent``: set if the chip must run another chip's code with an override
    - ``refused``: reasons why chip and stack are incompatible
    - ``lacking``: results that show what hipBLASLt or MIOpen lacks for the chip (see ``compatibility``)
    """

    stack: Stack
    gfx: str
    status: str
    lent: Optional[CodeLoan] = None
    report: Optional[Report] = None
    limits: tuple[Limit, ...] = ()
    broken: tuple[Broken, ...] = ()
    refused: tuple[Answer, ...] = ()
    lacking: tuple[Answer, ...] = ()
    tested: Optional[Tested] = None

    @property
    def runs_as(self) -> str:
        """Target whose code runs on the chip."""
        return self.lent.posing if self.lent else self.gfx

    @property
    def title(self) -> str:
        """Title of the stack, followed by the chip."""
        if self.lent:
            return f"{self.stack.title}: {self.gfx} as {self.lent.posing}"
        return f"{self.stack.title}: {self.gfx}"

    @property
    def status_words(self) -> str:
        """Description of the status, with its age."""
        return f"{STATUSES[self.status]} ({_age(self.report or self.tested or self.stack)})"

    @property
    def reason(self) -> str:
        """Sentences about the reports of this stack on this chip, or about why the stack cannot run."""
        if self.refused:
            refused = "; ".join(map(_with_source, self.refused))
            return f"According to published limits, it cannot run: {refused}."
        return " ".join(row.text for row in (self.report, *self.broken) if row)

    @property
    def evidence(self) -> str:
        """Sentences about what is known of the stack on this chip."""
        if self.refused:
            return self.reason
        return f"{sentence_case(self.status_words)}. {self.reason}".strip()

    def known_limits(self, sources: bool) -> tuple[str, ...]:
        """Return sentences about what does not work. ``sources``: with the sources of a library's limits."""
        words = _with_source if sources else (lambda answer: answer.says)
        return (*(row.text for row in self.limits), *(f"{words(answer)}." for answer in self.lacking))

    @property
    def sources(self) -> tuple[tuple[str, str, str], ...]:
        """(source, date, checked) of the stack, its status, the override, the limits and the failures."""
        rows = (*self.broken, self.report, self.tested, self.stack, self.lent, *self.limits)
        return tuple(dict.fromkeys((row.source, row.date, row.checked) for row in rows if row))


def _age(row: DatedRow) -> str:
    year, _, month = row.verified.partition("-")
    when = f"{month_name[int(month)]} {year}" if month else year
    return f"{'checked in' if row.checked else 'source from'} {when}"


def _with_source(answer: Answer) -> str:
    return f"{answer.says} ({answer.source})"


def options(
    gfx: Optional[str],
    system: str = "linux",
    distribution: Optional[str] = None,
    atomics: Optional[bool] = None,
) -> tuple[Option, ...]:
    """Return the stacks for a chip on a system, the best first. Return () for an unknown chip.

    Community stacks and builds from source come after other stacks. Stacks that are known to fail come last.
    ``atomics`` is True if the card can use PCIe atomics.
    """
    target = gpus.target(gfx)
    if target is None:
        return ()
    here = (
        _option(stack, target.gfx, lent, system, atomics)
        for stack in stacks()
        if system in stack.systems
        and (distribution is None or not stack.distributions or distribution in stack.distributions)
        for lent in _ways(stack, target.gfx, system)
    )
    newest = sorted(here, key=lambda option: version_numbers(option.stack.rocm), reverse=True)
    return tuple(sorted(newest, key=lambda option: _order(option, distribution)))


def _ways(stack: Stack, gfx: str, system: str) -> Iterator[Optional[CodeLoan]]:
    """Yield None if the stack has code for the chip, else the overrides with which the chip can run the
    stack.
    """
    if has_code(stack, gfx):
        yield None
    elif system == "linux":
        yield from (row for row in code_loans() if gfx in row.gfx and has_code(stack, row.posing))


def _option(stack: Stack, gfx: str, lent: Optional[CodeLoan], system: str, atomics: Optional[bool]) -> Option:
    posing = lent.posing if lent else ""
    report = next(
        (
            row
            for row in reports()
            if (row.stack, row.system, row.posing) == (stack.name, system, posing) and gfx in row.gfx
        ),
        None,
    )
    breaks = known_to_break(
        Installed(gfx, posing or gfx, stack.rocm or None, stack.torch or None, atomics, system)
    )
    answered = answers(combination(stack, gfx, lent, system, atomics))
    refused: tuple[Answer, ...] = ()
    publisher: Optional[Tested] = None
    if report:
        # A report about this stack is stronger evidence than a general rule.
        status = report.status
    elif breaks:
        status = "fails"
    elif failing(answered):
        status, refused = "fails", failing(answered)
    elif publisher := _tested(stack, gfx, lent, system):
        status = "tested"
    else:
        status = "listed" if not lent and _listed(stack, gfx) else "untested"
    if status not in ("untested", "fails") and is_outdated(report or publisher or stack):
        status = "unverified"
    here = tuple(
        row
        for row in limits()
        if gfx in row.gfx and stack.kind in row.kinds and (not row.systems or system in row.systems)
    )
    return Option(
        stack,
        gfx,
        status,
        lent,
        report,
        here,
        breaks,
        refused,
        tuple(
            answer
            for answer in answered
            if stack.kind in _PUBLISHED and answer.relation.name in _LIBRARIES and not answer.holds
        ),
        publisher,
    )


def _tested(stack: Stack, gfx: str, lent: Optional[CodeLoan], system: str) -> Optional[Tested]:
    rows = (row for row in publisher_tests() if not lent and stack.name in row.stacks)
    return next((row for row in rows if row.system == system and gfx in row.gfx), None)


def combination(
    stack: Stack, gfx: str, lent: Optional[CodeLoan], system: str, atomics: Optional[bool] = None
) -> Combination:
    """Return the combination of a chip with a stack.

    If ``lent`` is given, the chip runs another chip's code with an override.
    """
    runs_as = lent.posing if lent else gfx
    # data/compatibility.toml has the rocBLAS targets of the stacks from PyTorch and AMD. In other stacks,
    # rocBLAS is assumed to have code for the chip.
    return Combination(
        amd=True,
        gfx=gfx,
        effective=runs_as,
        override=lent.override if lent else None,
        torch=stack.torch or None,
        rocm=stack.rocm or None,
        system=system,
        torch_targets=(runs_as,),
        rocblas_targets=None if stack.kind in _PUBLISHED else (runs_as,),
        atomics=atomics,
        torch_kind="rocm",
    )


def _listed(stack: Stack, gfx: str) -> bool:
    """Return True if AMD officially supports the chip in the stack's ROCm release."""
    target = gpus.target(gfx)
    since = _LISTED.match(target.rocm) if target else None
    if since is None or stack.kind not in ("official", "amd-stable"):
        return False
    return version_numbers(stack.rocm) >= version_numbers(since[1])


def _order(option: Option, distribution: Optional[str]) -> tuple[bool, bool, int, bool, bool, bool]:
    kind = option.stack.kind
    built = kind in ("community", "source") or not (option.stack.packages or option.stack.commands)
    elsewhere = bool(option.stack.distributions) and distribution is None
    return (
        option.status == "fails",
        built or elsewhere,
        _RANKS[option.status],
        bool(option.broken),
        option.lent is not None,
        kind == "amd-nightly",
    )
