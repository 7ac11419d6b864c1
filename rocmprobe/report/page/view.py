"""Content of the page: the summary of the run, and the tables that only the page shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Optional

from rocmprobe.judge.notices import Notice
from rocmprobe.judge.summary import Summary
from rocmprobe.knowledge.causes import Cause, cause, layers
from rocmprobe.model.results import Finding
from rocmprobe.model.states import STATES, State
from rocmprobe.report import ladder, matrix, tables
from rocmprobe.report.changing_sizes import Sizes, changing_sizes
from rocmprobe.report.identity import changes_sentence, changes_table, identity
from rocmprobe.report.page.all_outcomes import AllOutcomes, all_outcomes
from rocmprobe.report.page.cost_chart import CostChart, cost_chart
from rocmprobe.report.page.evidence import Group, Log, groups, logs
from rocmprobe.report.page.first_calls import StartUps, start_up
from rocmprobe.report.page.layout import Fit
from rocmprobe.report.page.memory import Memory, memory
from rocmprobe.report.page.shapes_table import Program, program
from rocmprobe.report.page.telemetry_section import Telemetry, telemetry
from rocmprobe.report.page.throughput import Throughput, throughput
from rocmprobe.report.page.validation import Validation, validation
from rocmprobe.report.tables import Table
from rocmprobe.text.plain_text import one_line

FactRows = list[tuple[str, str, str]]


@dataclass(frozen=True)
class Page:
    """The parts of a report that only the page shows, within the limits of a ``Fit``."""

    title: str
    notices: tuple[Notice, ...]
    identity: list[tuple[str, str]]
    causes: list[Caused]
    layer_titles: Mapping[str, str]
    cost_chart: Optional[CostChart]
    devices: list[ladder.DeviceSection]
    looks: list[State]
    evidence: tuple[Group, ...]
    logs: tuple[Log, ...]
    all_outcomes: AllOutcomes
    per: Optional[Table]
    by_device: Optional[Table]
    alternatives: Optional[Table]
    program: Optional[Program]
    throughput: Optional[Throughput]
    start_up: Optional[StartUps]
    changing_sizes: Optional[Sizes]
    validation: Optional[Validation]
    memory: Optional[Memory]
    telemetry: Optional[Telemetry]
    sweep: Optional[matrix.Sweep]
    facts: FactRows
    variables: FactRows
    gpus: list[FactRows]
    against: str
    changes: Optional[Table]


def build(summary: Summary, fit: Fit) -> Page:
    """Return the content of the page within the limits of ``fit``."""
    results = summary.results
    found, machine = results.recommendation, results.machine
    measured = results if fit.tables else replace(results, outcomes=())
    simulated = "SIMULATED · " if results.simulated else ""
    left_out = f"To stay below 20 MB this page leaves out {fit.left_out}."
    shortened = (Notice("shortened", "Shortened", left_out),) if fit.left_out else ()
    states = {outcome.state for outcome in results.outcomes}
    return Page(
        title=one_line(f"{simulated}{summary.word} · {summary.card} · rocmprobe"),
        notices=(*summary.notices, *shortened),
        identity=identity(results),
        causes=by_cause(summary.findings),
        layer_titles={layer.name: layer.title for layer in layers()},
        cost_chart=cost_chart(summary.costs, bool(results.simulated)) if summary.costs else None,
        devices=[ladder.device(results, name, fit.tables) for name in ladder.device_names(results)],
        looks=[look for look in STATES.values() if look.name in states],
        evidence=groups(summary, fit),
        logs=logs(results, fit),
        all_outcomes=all_outcomes(summary, fit),
        per=tables.per_rows(found.per) if found else None,
        by_device=tables.device_rows(found.devices) if found else None,
        alternatives=tables.table(found.alternatives, ("setting", "verdict")) if found else None,
        program=program(measured),
        throughput=throughput(measured),
        start_up=start_up(measured),
        changing_sizes=changing_sizes(measured),
        validation=validation(measured),
        memory=memory(measured),
        telemetry=telemetry(measured),
        sweep=matrix.solver_matrix(results),
        facts=tables.fact_rows(tables.other_facts(machine)),
        variables=tables.fact_rows(tables.variable_facts(machine)),
        gpus=[tables.fact_rows(tables.gpu_facts(gpu)) for gpu in machine.gpus],
        against=changes_sentence(results.changes) if results.changes else "",
        changes=changes_table(results.changes),
    )


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


def _about(name: str) -> Optional[Cause]:
    try:
        return cause(name)
    except KeyError:
        return None
