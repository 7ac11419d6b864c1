"""The content of the page as plain data, computed from the results without HTML."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from rocmprobe.checks import CONVOLUTIONS
from rocmprobe.knowledge.causes import Cause, cause, layers
from rocmprobe.knowledge.variables import VARIABLE_NAME
from rocmprobe.model.problems import problem_words
from rocmprobe.model.results import (
    RUNGS,
    Configuration,
    DeviceAnswer,
    Fact,
    Finding,
    Gpu,
    Machine,
    Outcome,
    Results,
)  # fmt: skip
from rocmprobe.model.states import STATES, State
from rocmprobe.report import text  # fmt: skip
from rocmprobe.report.commands import exec_command
from rocmprobe.report.headline import headline
from rocmprobe.report.identity import (
    card,
    changes_sentence,
    changes_table,
    identity,
    poses,
    tested_machines_sentence,
)
from rocmprobe.report.page import (
    evidence,  # fmt: skip
    first_calls,  # fmt: skip
    layout,  # fmt: skip
    matrix,  # fmt: skip
    memory,  # fmt: skip
    shapes_table,  # fmt: skip
    telemetry_section,  # fmt: skip
    throughput,  # fmt: skip
    validation,  # fmt: skip
)
from rocmprobe.report.page.all_outcomes import all_outcomes
from rocmprobe.report.page.banners import banners
from rocmprobe.report.page.cost_chart import cost_chart
from rocmprobe.report.page.layout import FITS, Fit
from rocmprobe.report.states import SEVERITY_SYMBOLS, VERDICT_WORDS, verdict_tone, verdict_word, worst

RUNG_WORDS = {
    "copy": "Copy",
    "elementwise": "Elementwise",
    "gemm": "GEMM",
    "im2col": "im2col",
    "controls": "Controls",
    "direct": "Direct calls",
    "conv": "Convolution",
    "batch-norm": "Batch norm",
    "primitives": "Primitives",
    "train": "Training step",
}


@dataclass(frozen=True)
class Block:
    """Text for the reader to copy, with a label and a language ("sh" or "python")."""

    label: str
    body: str
    language: str


@dataclass(frozen=True)
class Rung:
    name: str
    look: Optional[State]
    detail: str
    anchor: str


@dataclass(frozen=True)
class Ladder:
    """The rungs (groups of checks) of a run."""

    rungs: tuple[Rung, ...]
    caption: str


@dataclass(frozen=True)
class DeviceSection:
    """Ladder and matrices of one device."""

    name: str
    isa: str
    ladder: Ladder
    layers: Optional[matrix.Matrix]
    problem_matrix: Optional[matrix.Matrix]
    matrix: Optional[matrix.Matrix]


def build(results: Results, fit: Fit) -> dict[str, Any]:
    """Return the values that the page template uses, within the limits of ``fit``."""
    recommendation = results.recommendation
    names = device_names(results)
    verdict = recommendation.verdict if recommendation else "none"
    return {
        "results": results,
        "title": title(results),
        "banners": banners(results, fit),
        "verdict": verdict,
        "verdict_word": verdict_word(results),
        "verdict_tone": verdict_tone(results),
        "headline": headline(results),
        "reason": sentence(results),
        "cost_chart": cost_chart(results),
        "in_words": problem_words,
        "recommendation": recommendation,
        "tried_on": tested_machines_sentence(results),
        "blocks": blocks(recommendation.configuration) if recommendation else (),
        "other_blocks": other_blocks(results),
        "identity": identity(results),
        "causes": by_cause(results.findings),
        "layer_titles": layer_titles(),
        "severity_symbols": SEVERITY_SYMBOLS,
        "devices": [device(results, name, fit) for name in names],
        "looks": [look for look in STATES.values() if any(o.state == look.name for o in results.outcomes)],
        "evidence": evidence.groups(results, fit),
        "logs": evidence.logs(results, fit),
        "all_outcomes": all_outcomes(results, fit),
        "per": per_rows(recommendation.per) if recommendation else (),
        "by_device": device_rows(recommendation.devices) if recommendation else (),
        "alternatives": layout.table(recommendation.alternatives, ("setting", "verdict"))
        if recommendation
        else None,
        **_measured(results if fit.tables else replace(results, outcomes=())),
        "facts": fact_rows(other_facts(results.machine)),
        "variables": fact_rows(variable_facts(results.machine)),
        "gpus": [fact_rows(gpu_facts(gpu)) for gpu in results.machine.gpus],
        "unlearned": matrix.without_result(results),
        "against": changes_sentence(results.changes) if results.changes else "",
        "changes": changes_table(results.changes),
        "settings": results.settings,
        "sweep": matrix.solver_matrix(results),
    }


def _measured(results: Results) -> dict[str, Any]:
    return {
        "program": shapes_table.program(results),
        "throughput": throughput.throughput(results),
        "start_up": first_calls.start_up(results),
        "changing_sizes": first_calls.changing_sizes(results),
        "own_kernels": throughput.own_kernels(results),
        "validation": validation.validation(results),
        "validation_views": validation.VIEWS.values(),
        "memory": memory.memory(results),
        "telemetry": telemetry_section.telemetry(results),
    }


def title(results: Results) -> str:
    words = verdict_word(results) if results.recommendation else "no recommendation"
    marker = "SIMULATED · " if results.simulated else ""
    return text.one_line(f"{marker}{words} · {card(results.machine)} · rocmprobe")


def sentence(results: Results) -> str:
    """Return the sentence of the recommendation, or a sentence that there is no recommendation."""
    if results.recommendation:
        return results.recommendation.sentence
    return "The run ended before a recommendation could be made."


def blocks(configuration: Configuration) -> list[Block]:
    """Return the blocks with which a user applies ``configuration``: shell commands, then Python lines."""
    exports = [f"unset {name}" for name in configuration.unset if VARIABLE_NAME.fullmatch(name)]
    exports += [
        f"export {name}={shlex.quote(value)}"
        for name, value in configuration.env.items()
        if VARIABLE_NAME.fullmatch(name)
    ]
    found = []
    if configuration.command:
        found.append(Block("Shell, before anything else", configuration.command, "sh"))
    if exports:
        found.append(Block("Shell, before the program starts", "\n".join(exports), "sh"))
    if configuration.code.strip():
        found.append(Block("Python, before the model runs", configuration.code.strip("\n"), "python"))
    return found


def other_blocks(results: Results) -> list[Block]:
    """Return the blocks for the other configurations that the recommendation mentions."""
    if results.recommendation is None:
        return []
    found: list[Block] = []
    shown = {block.body for block in blocks(results.recommendation.configuration)}
    for words, other in results.recommendation.others.items():
        mine = [block for block in blocks(other) if block.body not in shown]
        found += [replace(block, label=f"For {words}: {block.label}") for block in mine]
        if not results.partial and not _for_the_program(results, other):
            found.append(
                Block(f"For {words}, without changing the program", exec_command(results, other), "sh")
            )
    return found


def _for_the_program(results: Results, configuration: Configuration) -> bool:
    """Return True if ``configuration`` needs another dtype or memory format in the user's program."""
    return any(each.name == configuration.setting and each.changes_problems for each in results.settings)


def device_names(results: Results) -> list[str]:
    """Return the names of the tested devices in alphabetical order."""
    names = dict.fromkeys(outcome.device for outcome in results.outcomes)
    return sorted(names)


def device(results: Results, name: str, fit: Fit = FITS[0]) -> DeviceSection:
    mine = [outcome for outcome in results.outcomes if outcome.device == name]
    native, effective = mine[0].native_isa, mine[0].effective_isa
    isa = f"{native} as {effective}" if poses(native, effective) else native or ""
    layers, problem_matrix, convolutions = (
        (
            matrix.layers(results, name),
            matrix.build(results, name, "problem-matrix"),
            matrix.build(results, name, "convolution"),
        )
        if fit.tables
        else (None, None, None)
    )
    return DeviceSection(name, isa, ladder(results, mine), layers, problem_matrix, convolutions)


def ladder(results: Results, outcomes: Sequence[Outcome]) -> Ladder:
    rungs = tuple(rung(results, outcomes, step) for step in RUNGS)
    return Ladder(rungs, ladder_caption(rungs))


def rung(results: Results, outcomes: Sequence[Outcome], name: str) -> Rung:
    mine = [outcome for outcome in outcomes if outcome.rung == name and outcome.setting == "default"]
    if name == "conv":
        mine = [outcome for outcome in mine if outcome.check in CONVOLUTIONS] or mine
    if not mine:
        return Rung(RUNG_WORDS[name], None, "not run", "")
    culprit = worst(mine)
    return Rung(
        RUNG_WORDS[name],
        culprit.meaning,
        _counted(mine) if len(mine) > 1 else "",
        evidence.anchors(results)[id(culprit)],
    )


def _counted(outcomes: Sequence[Outcome]) -> str:
    tones = Counter(outcome.meaning.tone for outcome in outcomes)
    failed = tones["bad"] + tones["fault"]
    passed, idle = tones["good"] + tones["slow"], tones["unlearned"]
    parts = ((failed, "failed"), (passed, "passed"), (idle, "not run"))
    return ", ".join(f"{count} {word}" for count, word in parts if count)


def ladder_caption(rungs: Sequence[Rung]) -> str:
    """Return a sentence that names the first failing rung, or says that no rung fails."""
    applicable = [step for step in rungs if step.look is None or step.look.name != "n/a"]
    for position, step in enumerate(applicable):
        if step.look and step.look.tone == "bad":
            return f"Setting “default”: {_broken(applicable[:position], step)}"
    if all(map(_holds, applicable)):
        that_applies = " that applies" if len(applicable) < len(rungs) else ""
        return f"Setting “default”: every layer{that_applies} works."
    return "Setting “default”: no layer fails, but not every layer could be tested."


def _broken(below: Sequence[Rung], step: Rung) -> str:
    held = [each.name for each in below if _holds(each)]
    unknown = [each.name for each in below if not _holds(each)]
    if unknown:
        prefix = f"{', '.join(held)} {'work' if len(held) > 1 else 'works'}; " if held else ""
        return f"{prefix}{step.name} fails. Lower layers without a result: {', '.join(unknown)}."
    prefix = f"everything up to {held[-1]} works; " if held else ""
    return f"{prefix}{step.name} is the first layer that fails."


def _holds(step: Rung) -> bool:
    return step.look is not None and step.look.tone in ("good", "slow")


def per_rows(per: Mapping[str, Mapping[str, Any]]) -> layout.Table:
    rows = []
    for key, answer in per.items():
        dtype, _, purpose = key.partition("/")
        verdict = str(answer.get("verdict", ""))
        rows.append(
            {"dtype": dtype, "purpose": purpose, **answer, "verdict": VERDICT_WORDS.get(verdict, verdict)}
        )
    return layout.table(rows, ("dtype", "purpose", "verdict", "setting"))


def device_rows(devices: Mapping[str, DeviceAnswer]) -> layout.Table:
    """Return a table of the recommendations for several devices."""
    rows = [
        {
            "device": name,
            "GPU": f"{answer.gpu or ''}{', in the processor' if answer.in_processor else ''}".lstrip(", "),
            "verdict": answer.verdict,
            "setting": answer.setting,
            "variables": " ".join(
                [
                    *(f"{variable}={value}" for variable, value in answer.env.items()),
                    *(f"unset {variable}" for variable in answer.unset),
                ]
            ),
            "alone": answer.mask,
        }
        for name, answer in devices.items()
    ]
    return layout.table(rows, ("device", "GPU", "verdict", "setting"))


def gpu_facts(gpu: Gpu) -> dict[str, Fact]:
    return {name: fact for name, fact in vars(gpu).items() if fact.value is not None or fact.source}


def other_facts(machine: Machine) -> dict[str, Fact]:
    """Return the machine's facts, except those that ``variable_facts`` includes."""
    own = {f"variables.{name}" for name in machine.variables}
    return {name: fact for name, fact in machine.facts.items() if name not in own}


def variable_facts(machine: Machine) -> dict[str, Fact]:
    """Return the environment variables that are set. ``Fact.source`` is the variable's meaning, if known."""
    found = {}
    for name, fact in machine.variables.items():
        label = machine.facts.get(f"variables.{name}")
        found[name] = Fact(fact.value, f"{label.value}: {label.source}") if label else fact
    return found


def fact_rows(facts: Mapping[str, Fact]) -> list[tuple[str, str, str]]:
    return [(name, text.show(fact.value), fact.source) for name, fact in sorted(facts.items())]


@dataclass(frozen=True)
class Caused:
    """Findings with the same cause. ``about`` is None if the cause is unknown."""

    name: str
    about: Optional[Cause]
    findings: tuple[Finding, ...]


def by_cause(findings: Iterable[Finding]) -> list[Caused]:
    """Return the findings grouped by cause, in the order in which the causes first occur."""
    groups: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.cause].append(finding)
    return [Caused(name, _about(name), tuple(same)) for name, same in groups.items()]


def layer_titles() -> dict[str, str]:
    return {layer.name: layer.title for layer in layers()}


def _about(name: str) -> Optional[Cause]:
    try:
        return cause(name)
    except KeyError:
        return None
