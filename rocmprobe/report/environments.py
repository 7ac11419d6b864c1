"""The environments of a run side by side: which torch, what holds there, and how fast it is."""

from __future__ import annotations

from dataclasses import dataclass

from rocmprobe.judge.assessment import device_of
from rocmprobe.model.cases import target_key
from rocmprobe.model.results import FAILING_STATES, Environment, Fact, Results
from rocmprobe.report import text
from rocmprobe.report.page import networks
from rocmprobe.report.page.layout import Table, table
from rocmprobe.report.states import VERDICT_WORDS, reason


@dataclass(frozen=True)
class Row:
    """One environment in words. ``device`` is the one that its result is about, where the environments have
    different ones: a torch without GPUs computes on the CPU. ``note`` says why it is out of the question, or
    how long the training takes there that ``--estimate`` names; of the recommended one the run says that
    anyway."""

    name: str
    torch: str
    device: str
    verdict: str
    setting: str
    time: str
    note: str
    recommended: bool


def environment_rows(results: Results) -> list[Row]:
    """Every environment of the run, in the order in which they were named; none where it had none."""
    devices = {each.name: _device(results, each) for each in results.environments}
    differ = len({device for device in devices.values() if device}) > 1
    return [_row(results, each, devices[each.name] if differ else "") for each in results.environments]


def side_by_side(results: Results) -> Table:
    """The same as a table, without the notes."""
    found = [
        {
            "environment": f"{row.name} (recommended)" if row.recommended else row.name,
            "torch": row.torch, "device": row.device, "result": row.verdict, "setting": row.setting,
            "time": row.time,
        }
        for row in environment_rows(results)
    ]  # fmt: skip
    return table(found, ("environment", "device", "result", "setting", "time", "torch"))


def _device(results: Results, environment: Environment) -> str:
    """The device that the answer for an environment is about; "" where nothing was asked there."""
    own = results.of(environment)
    setting = environment.recommendation.configuration.setting if environment.recommendation else None
    moved = next((each.device for each in own.settings if setting and each.name == setting), None)
    asked = moved or device_of(own) or ""
    # Results by target have the environment in the names of their devices.
    named = {target_key(environment.name, each["device"]): each["device"] for each in own.options["targets"]}
    return str(named.get(asked, asked))


def _row(results: Results, environment: Environment, device: str) -> Row:
    found = environment.recommendation
    facts = {} if environment.unusable and not environment.facts else results.machine.facts
    torch = {**facts, **environment.facts}.get("torch.version", Fact()).value
    verdict = "Not tested" if environment.unusable else VERDICT_WORDS[found.verdict] if found else "No result"
    return Row(
        environment.name,
        text.show(torch) if torch else "",
        device,
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
    if found and found.verdict == "gpu-not-tested":
        return found.sentence
    if found and found.verdict != "none":
        return ""
    failed = (
        outcome
        for outcome in results.outcomes
        if outcome.environment == environment.name and outcome.state in FAILING_STATES
    )
    return next(map(reason, failed), "")
