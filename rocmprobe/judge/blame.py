"""Causes of failures and the software layers at fault, which ``data/causes.toml`` lists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Optional

from rocmprobe.explain.explain import Diagnosis, diagnose
from rocmprobe.explain.facts import Facts
from rocmprobe.judge.assessment import case_key, failed, quoted
from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge import causes
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.model.results import Finding, Machine, Outcome
from rocmprobe.text.log import of_text

#: (cause, layer) keyed by ``Outcome.failure``. It is used if the evidence names nothing more specific.
#: "oom-kill" means that the main memory was full. data/causes.toml has no cause for full main memory, only
#: the layer "oom".
_BY_FAILURE = {
    "out-of-memory": ("vram-oom", "oom"),
    "oom-kill": ("unknown", "oom"),
    "torch-unusable": ("unknown", "torch-build"),
}
#: Cause whose messages other causes have, too: only a trial without the override decides.
OVERRIDDEN = "override-isa-mismatch"
_CONFIRM_OVERRIDE = (
    "Install a PyTorch with code for the chip itself (`rocmprobe install`), then run "
    "`rocmprobe run --settings no-override`. If the failing tests pass, the override is the cause."
)
#: Conditions that hold in every run: its checks use PyTorch and no other package.
_OF_A_RUN = ("torch", "own-checks")
#: The layer probably at fault on an AMD GPU, keyed by the failed rung (group of checks). It is used if the
#: evidence names nothing more specific.
_RUNG_LAYERS = {
    "copy": "hip", "elementwise": "torch-build", "gemm": "rocblas", "im2col": "torch-build",
    "controls": "torch-build", "compiled": "triton",
}  # fmt: skip


def signature(run: Evidence, outcomes: Iterable[Outcome]) -> Optional[tuple[str, Optional[str]]]:
    """Return the (cause, layer) that the error messages of ``outcomes`` and the facts name, or None."""
    found = _diagnosed(run.machine, tuple(outcomes))
    cause = found.cause or found.symptom
    # A run executes rocmprobe's own checks: a library that misreads their shapes or dtypes is at fault.
    return (cause, found.layer) if cause and found.layer != "user-code" else None


def excluded(run: Evidence, outcomes: tuple[Outcome, ...]) -> tuple[str, ...]:
    """Return one line for each cause that the evidence suggests but facts about the machine rule out."""
    return tuple(line for line in _diagnosed(run.machine, outcomes).others if line.startswith("not "))


def contradicts(machine: Machine, outcome: Outcome, cause: str) -> bool:
    """Return True if the evidence of ``outcome`` proves another cause than ``cause``."""
    return _diagnosed(machine, (outcome,)).cause not in ("", cause)


def override_decided(run: Evidence) -> bool:
    """Return True if a case that fails under ``default`` passes without the ISA override."""
    broken = {case_key(outcome) for outcome in failed(run.under.get("default", ()))}
    without = (setting.name for setting in run.settings if OVERRIDE in setting.unset)
    return any(
        outcome.works and case_key(outcome) in broken
        for name in without
        for outcome in run.under.get(name, ())
    )


def with_confirmation(run: Evidence, finding: Finding) -> Finding:
    """Return ``finding`` with the test that decides its cause, if nothing in the run decided it."""
    if finding.cause != OVERRIDDEN or override_decided(run):
        return finding
    return replace(finding, confirm=_CONFIRM_OVERRIDE)


def cure(run: Evidence, cause: str, outcomes: tuple[Outcome, ...] = ()) -> str:
    """Return advice on how to fix ``cause`` on this machine."""
    broken = outcomes or failed(run.outcomes)
    words = _diagnosed(run.machine, broken).words
    return causes.advice_for(cause, words, broken[0].native_isa if broken else None)


def _diagnosed(machine: Machine, outcomes: tuple[Outcome, ...]) -> Diagnosis:
    facts = Facts()
    if outcomes:
        held = machine.value("torch.targets")
        facts = Facts(
            true_gfx=outcomes[0].native_isa,
            effective_gfx=outcomes[0].effective_isa,
            torch_targets=" ".join(held) if held else None,
        )
    text = "\n".join(line for outcome in outcomes for line in outcome.evidence)
    return diagnose(of_text(text).lines, facts, _OF_A_RUN)


def blamed(
    run: Evidence, outcomes: tuple[Outcome, ...], layer: str = "", cured: bool = False
) -> tuple[str, str]:
    """Return the (cause, layer) of failed ``outcomes``.

    If the error messages name no layer, return ``layer``, or the layer of the vendor library. ``cured`` is
    True if the same cases pass under another setting.
    """
    layer = layer or library_layer(run, outcomes)
    named = signature(run, outcomes)
    # The override was set under the cure, too, so the cure points to a part of the vendor library instead.
    if named and not (cured and named[0] == OVERRIDDEN and not override_decided(run)):
        return named[0], named[1] or layer
    kinds = {outcome.failure for outcome in outcomes}
    for cause, known in _BY_FAILURE.items():
        if kinds == {cause}:
            return known
    if outcomes and all(outcome.state == "wrong" for outcome in outcomes):
        return ("wrong-results-solver" if cured else "wrong-results-unexplained"), layer
    if named and run.library == "MIOpen":
        return "miopen-solver-bug", layer
    if outcomes and all(outcome.activity in ("compiler-child", "compiling") for outcome in outcomes):
        return "cold-compile-slow", "miopen-compile" if layer.startswith("miopen") else layer
    return "unknown", layer


def library_layer(run: Evidence, outcomes: tuple[Outcome, ...]) -> str:
    """Return the vendor library's failing layer: "miopen-find", "miopen-exec", "cudnn" or "onednn"."""
    if run.library != "MIOpen":
        return run.library.lower()
    return "miopen-find" if outcomes and outcomes[0].failure == "miopen-status" else "miopen-exec"


def search_layer(run: Evidence) -> str:
    """Return the layer that chooses the vendor library's kernels: "miopen-find", "cudnn" or "onednn"."""
    return "miopen-find" if run.library == "MIOpen" else run.library.lower()


def rung_layer(run: Evidence, rung: str) -> str:
    """Return the software layer that is probably at fault if checks of the group ``rung`` fail."""
    if run.library != "MIOpen":
        return "torch-build"
    return _RUNG_LAYERS.get(rung, "miopen-exec")


def failure(
    run: Evidence,
    name: str,
    severity: str,
    title: str,
    outcomes: tuple[Outcome, ...],
    advice: str,
    layer: str = "",
    cured: bool = False,
) -> Finding:
    """Return a finding about failed ``outcomes`` (see :func:`blamed`)."""
    return Finding(name, severity, *blamed(run, outcomes, layer, cured), title, quoted(outcomes), advice)
