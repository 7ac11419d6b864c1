"""What one bundle says of a chip and a stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Optional

from rocmprobe.collection.checking import Bundle
from rocmprobe.collection.naming import chip_name, gpu_facts, stack_facts, stack_name, tested_gpus
from rocmprobe.model.results import (
    GPU_IDENTITY,
    NATIVE,
    UNJUDGED,
    Gpu,
    Outcome,
    Results,
    Setting,
)
from rocmprobe.model.states import RUN_DIED, state_of
from rocmprobe.report.states import worst


class Question(NamedTuple):
    """A cell of a chip and stack: what was asked, by whom (``driver``) and under which setting."""

    setting: str
    driver: str
    check: str
    dtype: str
    direction: str


@dataclass(frozen=True)
class Recommended:
    """What is recommended for a chip and stack. ``vendor_library``: whether convolution may enter it; None
    where nothing is recommended. ``pytorch_layers`` are the other layers that PyTorch's own kernels compute.
    """

    verdict: str
    setting: Optional[str]
    vendor_library: Optional[bool]
    pytorch_layers: tuple[str, ...]
    env: Mapping[str, str]
    code: str


@dataclass(frozen=True)
class Submission:
    """A bundle without its results: of thousands they would not fit into memory."""

    path: Path
    sha256: str
    size: int
    chip: str
    date: str
    rocmprobe: str
    partial: bool
    label: str


@dataclass(frozen=True)
class Answer:
    """What one bundle says of one chip and stack. ``states`` has, for each question, the worst state of the
    problems that were asked, and ``rungs`` the place of each check on the ladder; ``machine`` is what
    machines are told apart by."""

    submission: Submission
    chip: str
    stack: str
    gpu: Mapping[str, Any]
    software: Mapping[str, Any]
    machine: tuple[Any, ...]
    states: Mapping[Question, str]
    rungs: Mapping[str, str]
    settings: Mapping[str, Setting]
    recommended: Optional[Recommended]

    @property
    def date(self) -> str:
        return self.submission.date


def works(state: str) -> Optional[bool]:
    """Whether a state says that something works; None where it says nothing of chip and stack."""
    # `_state` has put "hang" for a machine that died.
    meaning = state_of(state, RUN_DIED)
    return meaning.works if meaning.learned else None


def answers_of(bundle: Bundle) -> Iterator[Answer]:
    """Yield an answer for each device that a bundle is about."""
    for device, gpu in tested_gpus(bundle.results).items():
        states = _states(each for each in bundle.results.outcomes if each.device == device)
        if states:
            yield _answer(bundle, device, gpu, states)


def _answer(bundle: Bundle, device: str, gpu: Optional[Gpu], states: Mapping[Question, str]) -> Answer:
    results = bundle.results
    facts = gpu_facts(gpu) if gpu else gpu_facts(Gpu())
    software = stack_facts(results.machine, gpu)
    same = (
        *(facts[name] for name in GPU_IDENTITY), software["kernel"], software["driver"],
    )  # fmt: skip
    submission = _submission(bundle)
    return Answer(
        submission,
        chip_name(facts["native_isa"], device),
        stack_name(results.machine, gpu),
        facts,
        software,
        (submission.label,) if submission.label else same,
        states,
        {each.check: each.rung for each in results.outcomes},
        {each.name: each for each in results.settings},
        _recommended(results, device),
    )


def _submission(bundle: Bundle) -> Submission:
    results, label = bundle.results, str(bundle.manifest.get("label") or "")
    return Submission(
        bundle.path, bundle.sha256, bundle.size, bundle.chip, results.started, results.rocmprobe,
        results.partial, label,
    )  # fmt: skip


def _states(outcomes: Iterator[Outcome]) -> dict[Question, str]:
    asked: dict[Question, list[Outcome]] = {}
    for outcome in outcomes:
        question = Question(
            outcome.setting, outcome.driver, outcome.check, outcome.dtype, outcome.direction or ""
        )
        asked.setdefault(question, []).append(outcome)
    return {question: _state(found) for question, found in asked.items()}


def _state(outcomes: list[Outcome]) -> str:
    """The worst of those that say anything, as they came: a known failure is a failure."""
    came = [(each.expected.state if each.expected else each.state, each) for each in outcomes]
    # A run that was ended says nothing of the device; one that took the machine with it does.
    died = [state for state, each in came if state == "aborted" and each.cause == "machine-died"]
    if died:
        return "hang"
    learned = [each for state, each in came if works(state) is not None]
    found = worst(learned or outcomes)
    return found.expected.state if found.expected else found.state


def _recommended(results: Results, device: str) -> Optional[Recommended]:
    found = results.recommendation
    if found is None:
        return None
    one = found.devices.get(device)
    verdict, setting = (one.verdict, one.setting) if one else (found.verdict, found.configuration.setting)
    env = one.env if one else found.configuration.env
    same = setting == found.configuration.setting
    row = next((each for each in results.settings if each.name == setting), None)
    if verdict in UNJUDGED:
        return None
    # Of "none" nothing follows; under the other verdicts convolution stays out of the library.
    library = None if verdict == "none" else verdict in NATIVE
    return Recommended(
        verdict, setting, library, row.pytorch_layers if row else (), dict(sorted(env.items())),
        found.configuration.code if same else "",
    )  # fmt: skip
