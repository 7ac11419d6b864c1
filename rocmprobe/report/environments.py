"""The environments of a run side by side: which torch, what holds there, and how fast it is."""

from __future__ import annotations

from dataclasses import dataclass

from rocmprobe.model.results import FAILING_STATES, Environment, Fact, Results
from rocmprobe.report import text
from rocmprobe.report.page import networks
from rocmprobe.report.page.layout import Table, table
from rocmprobe.report.states import VERDICT_WORDS, reason


@dataclass(frozen=True)
class Row:
    """One environment in words; ``note`` says why it is out of the question, or how long the training takes
    there that ``--estimate`` names; of the recommended one the run says that anyway."""

    name: str
    torch: str
    verdict: str
    setting: str
    time: str
    note: str
    recommended: bool


def environment_rows(results: Results) -> list[Row]:
    """Every environment of the run, in the order in which they were named; none where it had none."""
    return [_row(results, each) for each in results.environments]


def side_by_side(results: Results) -> Table:
    """The same as a table, without the notes."""
    found = [
        {
            "environment": f"{row.name} (recommended)" if row.recommended else row.name,
            "torch": row.torch, "result": row.verdict, "setting": row.setting, "time": row.time,
        }
        for row in environment_rows(results)
    ]  # fmt: skip
    return table(found, ("environment", "result", "setting", "time", "torch"))


def _row(results: Results, environment: Environment) -> Row:
    found = environment.recommendation
    facts = {} if environment.unusable and not environment.facts else results.machine.facts
    torch = {**facts, **environment.facts}.get("torch.version", Fact()).value
    verdict = "Not tested" if environment.unusable else VERDICT_WORDS[found.verdict] if found else "No result"
    return Row(
        environment.name,
        text.show(torch) if torch else "",
        verdict,
        (found.configuration.setting if found else None) or "",
        text.seconds(environment.seconds) if environment.seconds else "",
        environment.unusable or _why_none(results, environment) or _estimate(results, environment),
        environment is results.recommended_environment,
    )


def _estimate(results: Results, environment: Environment) -> str:
    if environment is results.recommended_environment:
        return ""
    return networks.line(results.of(environment))


def _why_none(results: Results, environment: Environment) -> str:
    """The first failure where no setting is right, which is the lowest of the ladder."""
    found = environment.recommendation
    if found and found.verdict != "none":
        return ""
    failed = (
        outcome
        for outcome in results.outcomes
        if outcome.environment == environment.name and outcome.state in FAILING_STATES
    )
    return next(map(reason, failed), "")
