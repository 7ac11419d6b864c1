"""What a run or ``rocmprobe detect`` recorded, as a log and facts for `rocmprobe explain`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Optional

from rocmprobe.explain.log_facts import Facts, facts_of
from rocmprobe.knowledge.compatibility import first_device
from rocmprobe.model.results import RUNGS, Machine, Outcome, Results
from rocmprobe.text.log import Log, of_text

_EXITS = {
    "SIGSEGV": "segv", "SIGABRT": "abort", "timeout": "hang", "many-hangs": "hang", "gpu-wedged": "hang",
}  # fmt: skip


def log_of(results: Results) -> Log:
    """What was said where a run failed: evidence and messages of the outcomes that failed, lowest rung first,
    then what their trials printed; where nothing failed, what all trials printed."""
    failing = _failing(results)
    tried = {attempt.trial for outcome in failing for attempt in outcome.attempts}
    tried |= {outcome.trial for outcome in failing}
    messages = [text for outcome in failing for text in _messages(outcome)]
    printed = [trial.log for trial in results.trials if trial.id in tried or not failing]
    return of_text("\n".join((*dict.fromkeys(messages), *printed)))


def facts_of_results(results: Results) -> Facts:
    """The facts of the tested machine, and how the first failure ended."""
    failing = _failing(results)
    found = facts_of_machine(results.machine, _exit(failing[0]) if failing else "none")
    # A run names its GPU to the trials, whichever is the first.
    return replace(found, first_gpu=None)


def facts_of_machine(machine: Machine, exit: Optional[str] = None) -> Facts:
    """The facts of the first AMD GPU that programs see and of the software of a machine."""
    system = (machine.value("os.name"), machine.value("kernel.release"))
    words: dict[str, Any] = {
        "rocm": machine.value("rocm.version") or machine.value("hip.version"),
        "torch": machine.value("torch.version"),
        "os": " ".join(str(value) for value in system if value),
        "exit": exit,
        "first_gpu": first_device(machine),
        "torch_targets": " ".join(machine.value("torch.targets") or ()),
        "rocblas_targets": " ".join(machine.value("rocblas.targets") or ()),
    }
    for gpu in sorted(machine.amd_gpus, key=lambda each: each.index.value != 0)[:1]:
        words["gpu"] = gpu.name.value
        words["true_gfx"] = gpu.native_isa.value
        words["effective_gfx"] = gpu.effective_isa.value
    env = {name: str(fact.value) for name, fact in machine.variables.items() if fact.value is not None}
    return facts_of({"env": env, **{name: str(word) for name, word in words.items() if word}})


def _failing(results: Results) -> list[Outcome]:
    failing = [outcome for outcome in results.outcomes if outcome.fails]
    return sorted(
        failing, key=lambda outcome: RUNGS.index(outcome.rung) if outcome.rung in RUNGS else len(RUNGS)
    )


def _messages(outcome: Outcome) -> Iterator[str]:
    yield from outcome.evidence
    for attempt in outcome.attempts:
        yield attempt.message


def _exit(outcome: Outcome) -> Optional[str]:
    by_state = {"hang": "hang", "wrong": "none", "error": "exception"}
    return _EXITS.get(outcome.cause or "") or by_state.get(outcome.state)
