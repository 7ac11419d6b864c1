"""Summary of a judged run, which page, terminal, Markdown, JUnit and GitHub annotations render."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Optional

from rocmprobe.judge.failures import Count, Failures, by_reason, counts, reason
from rocmprobe.judge.findings.sweep import FAULTY_SOLVERS
from rocmprobe.judge.findings.sweep import summary as sweep_sentence
from rocmprobe.judge.notices import Notice, notices
from rocmprobe.judge.recommendation.advice import other_build
from rocmprobe.judge.recommendation.blocks import ToCopy, to_copy, verify_command
from rocmprobe.judge.recommendation.verdict import WORDINGS, Wording, headline, verdict_word
from rocmprobe.model.cards import card
from rocmprobe.model.results import Costs, Finding, OtherHelp, Recommendation, Results, Setting
from rocmprobe.model.states import State
from rocmprobe.text.plain_text import one_line

#: Statement in reports about the machines on which rocmprobe was tested (docs/how-it-decides.md#limits).
TRIED_ON = (
    "rocmprobe itself was tried on an emulated gfx1010, with MIOpen 3.4.0 and 3.5.1; not on AMD hardware."
)


@dataclass(frozen=True)
class NotRun:
    """Number of cases that did not run for the same reason."""

    state: State
    reason: str
    number: int


@dataclass(frozen=True)
class Summary:
    """The judgement of a run in words.

    - ``results``: the judged run, for tables of single outcomes
    - ``verdict``: one of ``model.results.VERDICTS``, or "" without a recommendation
    - ``word``, ``tone``: the verdict in words, and its colour tone
    - ``headline``: the verdict in at most twelve words
    - ``reason``: sentences that say what to do and why
    - ``live``: True while the run goes on
    - ``to_copy``: blocks that apply the recommended configuration
    - ``nothing_to_copy``: sentence that replaces ``to_copy`` if there are no blocks
    - ``others``: blocks for other uses, e.g. for float16
    - ``costs``, ``cost``: time and memory of each correct setting, and of the recommended setting in words
    - ``failures``: failed cases, grouped by reason
    - ``counts``: number of cases by result. The numbers add up to the number of planned cases.
    - ``not_run``: planned cases that did not run
    - ``not_tested``: what no case tested
    - ``solvers``: result of MIOpen's solvers, each run alone, if no finding says the result
    - ``confidence``: level and reason of the confidence in the recommendation
    - ``verify``: command that tests the recommended configuration again
    - ``advice``: other PyTorch builds, and repairs of the machine
    """

    results: Results
    card: str
    verdict: str
    word: str
    tone: str
    headline: str
    reason: str
    live: bool
    notices: tuple[Notice, ...]
    to_copy: ToCopy
    nothing_to_copy: str
    others: tuple[ToCopy, ...]
    costs: Optional[Costs]
    cost: str
    findings: tuple[Finding, ...]
    failures: tuple[Failures, ...]
    counts: tuple[Count, ...]
    not_run: tuple[NotRun, ...]
    not_tested: tuple[str, ...]
    solvers: str
    confidence_level: str
    confidence: str
    tried_on: str
    verify: str
    advice: tuple[OtherHelp, ...]


def summarize(results: Results, live: bool = False) -> Summary:
    """Return the summary of ``results``, which must be judged. ``live`` is True while the run goes on."""
    found = results.recommendation or Recommendation("none", "")
    verdict = found.verdict if results.recommendation else ""
    wording = WORDINGS[verdict]
    setting = results.setting(found.configuration.setting)
    main = to_copy(results, found.configuration)
    of_miopen = any(target.get("backend") == "miopen" for target in results.options.get("targets") or ())
    untested = () if of_miopen or results.simulated else ("any AMD GPU: this run did not test one",)
    in_finding = any(finding.id == FAULTY_SOLVERS for finding in results.findings)
    return Summary(
        results=results,
        card=card(results.machine),
        verdict=verdict,
        word=_word(results, verdict, setting),
        tone=_tone(results, wording),
        headline=headline(results),
        reason=found.sentence or wording.sentence,
        live=live,
        notices=notices(results, live),
        to_copy=main,
        nothing_to_copy="" if main.blocks else wording.nothing_to_copy,
        others=_others(results, found, main),
        costs=found.costs,
        cost=found.cost,
        findings=results.findings,
        failures=by_reason(each for each in results.outcomes if each.fails or each.state == "probe-error"),
        counts=counts(results.outcomes, results.not_reached),
        not_run=_not_run(results),
        not_tested=(*untested, *found.not_covered),
        solvers="" if in_finding else sweep_sentence(results),
        confidence_level=found.confidence_level,
        confidence=": ".join(filter(None, (found.confidence_level, found.confidence))),
        tried_on=TRIED_ON if of_miopen and not results.simulated else "",
        verify=found.verify,
        advice=found.advice,
    )


def _tone(results: Results, wording: Wording) -> str:
    found = results.recommendation
    if found is None:
        return wording.tone
    if results.partial:
        return "unlearned"
    without = any(
        answer["verdict"] == "none" for name, answer in found.per.items() if name.endswith(results.purpose)
    )
    return "slow" if wording.tone == "good" and (found.limits or without) else wording.tone


def _word(results: Results, verdict: str, setting: Optional[Setting]) -> str:
    if other_build(results.machine, results.findings, verdict):
        return "Another PyTorch"
    return verdict_word(verdict, setting.pytorch_layers if setting else ())


def with_commands_for(summary: Summary, folder: str) -> Summary:
    """Return the summary with commands for a run in ``folder``, e.g. its absolute path.

    A report has a relative path, because it is public.
    """
    results = replace(summary.results, options={**summary.results.options, "folder": folder})
    found = results.recommendation or Recommendation("none", "")
    main = to_copy(results, found.configuration)
    return replace(
        summary,
        results=results,
        notices=notices(results, summary.live),
        to_copy=main,
        others=_others(results, found, main),
        verify=verify_command(results) if found.verify else "",
    )


def _others(results: Results, found: Recommendation, main: ToCopy) -> tuple[ToCopy, ...]:
    shown = {block.body for block in main.blocks}
    others = (to_copy(results, other, use) for use, other in found.others.items())
    return tuple(
        replace(other, blocks=tuple(block for block in other.blocks if block.body not in shown))
        for other in others
    )


def _not_run(results: Results) -> tuple[NotRun, ...]:
    """Return the cases that did not run by state and reason, the most frequent reason first."""
    numbers = Counter(
        (outcome.meaning, one_line(reason(outcome)) or outcome.meaning.meaning)
        for outcome in results.outcomes
        if outcome.meaning.pytest == "skipped"
    )
    return tuple(NotRun(state, why, number) for (state, why), number in numbers.most_common())
