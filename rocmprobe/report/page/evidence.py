"""Evidence for each outcome: full detail for failures, one row for other outcomes."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.failures import Count, Failures, by_reason, reason
from rocmprobe.judge.summary import Summary
from rocmprobe.model.results import (
    BadInput,
    Outcome,
    Results,
    Setting,
    Trial,
)
from rocmprobe.model.states import State
from rocmprobe.report.anchors import anchors, took
from rocmprobe.report.page.layout import Fit, fit_lines
from rocmprobe.report.repro.script import reproduction
from rocmprobe.text import readable as text
from rocmprobe.text.plain_text import assignments

_LOG_LINES = 80
_SCRIPTS = 20
#: Results of pytest with full detail for each outcome, and those with one row for each outcome.
_DETAILED = ("failed", "error", "xfailed", "xpassed")
_SHORT = ("skipped", "passed")


@dataclass(frozen=True)
class Entry:
    """A failed outcome with full detail.

    ``same`` is the anchor of an earlier entry with the same lines, or "".
    """

    anchor: str
    label: str
    look: State
    hint: str
    arch: str
    facts: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    same: str
    log: str


@dataclass(frozen=True)
class Row:
    """An outcome as one table row."""

    anchor: str
    look: State
    setting: str
    subject: str
    arch: str
    took: str
    note: str


@dataclass(frozen=True)
class Bundle:
    """Failures with the same reason, or passed outcomes of the same check."""

    heading: str
    count: int
    entries: tuple[Entry, ...] = ()
    rows: tuple[Row, ...] = ()
    script: str = ""


@dataclass(frozen=True)
class Group:
    """The outcomes of one row of the table of counts."""

    count: Count
    bundles: tuple[Bundle, ...]


@dataclass(frozen=True)
class Log:
    """Output and mapped libraries of one or more child processes.

    ``trials`` are the processes. All of them have the same output and the same libraries.
    """

    anchor: str
    trials: tuple[str, ...]
    mapped: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]


def groups(summary: Summary, fit: Fit) -> tuple[Group, ...]:
    """Return the outcomes in groups, failures first."""
    results = summary.results
    by_result = {count.result: count for count in summary.counts}
    entries = _Entries(results, fit)
    found = []
    for result in (*_DETAILED, *_SHORT):
        if result not in by_result:
            continue
        members = [outcome for outcome in results.outcomes if outcome.meaning.pytest == result]
        if result in _DETAILED:
            bundles = _failures(results, by_reason(members), entries, fit.entries)
        else:
            bundles = _checks(results, members[: fit.rows], entries.anchors)
        found.append(Group(by_result[result], bundles))
    return tuple(found)


def _failures(
    results: Results, failures: Iterable[Failures], entries: _Entries, room: int
) -> tuple[Bundle, ...]:
    """Return the failures by reason, with at most ``room`` entries."""
    bundles = []
    for number, alike in enumerate(failures):
        shown = alike.outcomes[:room]
        room -= len(shown)
        if shown:
            made = tuple(map(entries.entry, shown))
            script = _script(results, shown) if number < _SCRIPTS else ""
            bundles.append(Bundle(alike.heading, len(alike.outcomes), entries=made, script=script))
    return tuple(bundles)


def _script(results: Results, outcomes: Sequence[Outcome]) -> str:
    for outcome in outcomes[:3]:
        try:
            return reproduction(results, outcome.id)
        except BadInput:
            continue
    return ""


def _checks(results: Results, outcomes: Iterable[Outcome], anchors: Mapping[int, str]) -> tuple[Bundle, ...]:
    several = len({outcome.device for outcome in results.outcomes}) > 1
    by_check: dict[str, list[Row]] = defaultdict(list)
    for outcome in outcomes:
        by_check[outcome.check].append(_row(anchors[id(outcome)], outcome, several))
    return tuple(Bundle(check, len(rows), rows=tuple(rows)) for check, rows in by_check.items())


def _row(anchor: str, outcome: Outcome, several_devices: bool) -> Row:
    parts = (
        outcome.problem or outcome.dtype, outcome.direction, outcome.device if several_devices else "",
    )  # fmt: skip
    learned = outcome.learned
    seconds = took(outcome)
    found = " · ".join(filter(None, (_share(outcome), outcome.solver)))
    note = found if learned else text.one_line(reason(outcome), 120)
    if outcome.state == "slow":
        note = text.one_line(reason(outcome), 120) or note
    return Row(
        anchor, outcome.meaning, outcome.setting, " ".join(filter(None, parts)),
        arch(outcome), text.seconds(seconds) if learned and seconds else "", note,
    )  # fmt: skip


def share_of_limit(outcome: Outcome, name: str) -> Optional[float]:
    """Return the error ``name`` divided by its limit, or None if the error or the limit is unknown."""
    value = text.numeric(outcome.numerics.get(name))
    limit = text.numeric(outcome.numerics.get(f"{name}_limit"))
    return value / limit if value is not None and limit else None


def _share(outcome: Outcome) -> str:
    shares = [share for name in outcome.numerics if (share := share_of_limit(outcome, name)) is not None]
    return f"{max(shares):.0%} of its limit" if shares else ""


def arch(outcome: Outcome) -> str:
    """Return native and effective ISA, separated by a space, for the page's search filter."""
    return " ".join(dict.fromkeys(filter(None, (outcome.native_isa, outcome.effective_isa))))


class _Entries:
    def __init__(self, results: Results, fit: Fit) -> None:
        self._fit = fit
        self._settings = {setting.name: setting for setting in results.settings}
        self._trials = {trial.id: trial for trial in results.trials}
        alike = enumerate(_alike(results.trials).values())
        self._logs = {trial.id: _log(number) for number, same in alike for trial in same}
        self._several = len({outcome.device for outcome in results.outcomes}) > 1
        self.anchors = anchors(results)
        self._shown_in: dict[tuple[str, ...], str] = {}

    def entry(self, outcome: Outcome) -> Entry:
        setting, trial = self._settings.get(outcome.setting), self._trials.get(outcome.trial)
        own = self.anchors[id(outcome)]
        lines = tuple(fit_lines(list(outcome.evidence), self._fit))
        first = self._shown_in.setdefault(lines, own) if lines else own
        return Entry(
            anchor=own,
            label=_label(outcome) + (f" · {outcome.device}" if self._several else ""),
            look=outcome.meaning,
            hint=text.one_line(reason(outcome), 120),
            arch=arch(outcome),
            facts=tuple(_facts(outcome, setting, trial)),
            lines=lines if first == own else (),
            same="" if first == own else first,
            log=self._logs.get(outcome.trial, ""),
        )


def _label(outcome: Outcome) -> str:
    subject = outcome.problem or f"{outcome.rung}: {outcome.check}"
    check = outcome.check if outcome.problem and outcome.check != "convolution" else ""
    return " · ".join(part for part in (subject, outcome.direction, check, outcome.setting) if part)


def _facts(outcome: Outcome, setting: Optional[Setting], trial: Optional[Trial]) -> Iterable[tuple[str, str]]:
    late = ", died in teardown" if trial and trial.exit_crash else ""
    ended = f", exit {trial.exit}{late}" if trial else ""
    yield "command", f"rocmprobe repro results.json {shlex.quote(text.one_line(outcome.id, 300))}"
    if setting and _under(setting):
        yield "under", _under(setting)
    yield "trial", f"{outcome.trial or 'none'}{ended}"
    known = outcome.expected
    if known:
        yield "came to", known.state
        yield f"expected by {known.source}", " ".join(filter(None, (known.reason, known.link)))
    for name in ("failure", "phase", "activity", "solver", "algorithm"):
        if getattr(outcome, name):
            yield name, getattr(outcome, name)
    if outcome.ending:
        yield "its process", text.show(outcome.ending)
    for name in ("timings", "numerics", "memory", "conditions"):
        if getattr(outcome, name):
            yield name, text.show(getattr(outcome, name))
    yield from _attempts(outcome)


def _under(setting: Setting) -> str:
    parts = assignments(setting.env)
    parts += [f"unset {name}" for name in setting.unset]
    parts += [f"torch {name}={text.show(value)}" for name, value in setting.torch.items()]
    if not setting.vendor_library:
        parts.append("vendor library off")
    if setting.bypass:
        parts.append("bypass")
    parts += [f"{option} by PyTorch" for option in setting.pytorch_layers]
    if setting.inherit_environment:
        parts.append("the user's own environment")
    return " ".join(parts)


def _attempts(outcome: Outcome) -> Iterable[tuple[str, str]]:
    alike: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for number, attempt in enumerate(outcome.attempts, 1):
        alike[attempt.state, attempt.message].append((number, text.seconds(attempt.seconds)))
    for (state, message), tries in alike.items():
        numbers = ", ".join(str(number) for number, _ in tries)
        times = ", ".join(seconds for _, seconds in tries)
        name = f"attempt{'s' if len(tries) > 1 else ''} {numbers}"
        yield name, " · ".join(filter(None, (state, times, message)))


def logs(results: Results, fit: Fit) -> tuple[Log, ...]:
    """Return the output of the child processes. Processes with the same output and libraries share an
    entry."""
    found = []
    for number, ((log, mapped), same) in enumerate(_alike(results.trials).items()):
        tail = log.splitlines()
        cut = len(tail) - _LOG_LINES
        kept = [f"[{cut} lines left out]", *tail[-_LOG_LINES:]] if cut > 0 else tail
        found.append(Log(_log(number), tuple(map(_trial, same)), mapped, tuple(fit_lines(kept, fit))))
    return tuple(found[: fit.entries])


_Said = tuple[str, tuple[tuple[str, str], ...]]


def _alike(trials: Sequence[Trial]) -> dict[_Said, list[Trial]]:
    alike: dict[_Said, list[Trial]] = defaultdict(list)
    for trial in trials:
        mapped = tuple((name, ", ".join(paths)) for name, paths in trial.mapped.items())
        alike[text.plain(trial.log), mapped].append(trial)
    return alike


def _log(number: int) -> str:
    return f"l{number}"


def _trial(trial: Trial) -> str:
    late = " in teardown" if trial.exit_crash else ""
    return f"{trial.id}: on {trial.device}, {trial.start_method}, exit {trial.exit}{late}"
