"""Findings from calls of MIOpen and rocBLAS without PyTorch.

They show if PyTorch or the library is at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Optional

from rocmprobe.judge.assessment import failed, quoted
from rocmprobe.judge.blame import blamed, library_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding, Outcome, Results

#: (library, check that uses the same library through PyTorch), keyed by check.
_CHECKS = {"rocblas-direct": ("rocBLAS", "gemm"), "miopen-direct": ("MIOpen", "convolution")}
#: The check that explains a finding, keyed by the finding's id.
_EXPLAINED = {"rung-gemm": "rocblas-direct", "native-convolution": "miopen-direct"}

#: (outcome without PyTorch, outcome of the same case in PyTorch or None).
_Pair = tuple[Outcome, Optional[Outcome]]


def direct(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each library whose result without PyTorch differs from the result in PyTorch.

    Also yield a finding if a library fails without PyTorch, and there is no result in PyTorch.
    """
    for check in _CHECKS:
        finding = _finding(run, check, _pairs(run, check))
        if finding:
            yield finding


def _pairs(run: Evidence, check: str) -> list[_Pair]:
    def case(outcome: Outcome) -> tuple[object, ...]:
        return outcome.device, outcome.problem, outcome.dtype, outcome.direction

    _, same = _CHECKS[check]
    in_torch = {case(each): each for each in run.outcomes if (each.check, each.setting) == (same, "default")}
    return [(each, in_torch.get(case(each))) for each in run.outcomes if each.check == check]


def _finding(run: Evidence, check: str, pairs: list[_Pair]) -> Optional[Finding]:
    name, same = _CHECKS[check]
    broken = failed(ours for ours, _ in pairs)
    if not broken:
        stopped = tuple(theirs for ours, theirs in pairs if ours.works and theirs and _stopped(theirs))
        if not stopped:
            return None
        works = [ours for ours, theirs in pairs if ours.works and theirs in stopped]
        title = f"{name} computes correctly without PyTorch, but {same} in PyTorch fails or cannot run"
        evidence = (*quoted(stopped, 2), *quoted(works, 2))
        advice = (
            "Look at PyTorch's build or its bundled libraries: `rocmprobe install` prints the commands that "
            "install another build for this GPU."
        )
        return Finding(
            check, "error", blamed(run, stopped, "torch-build")[0], "torch-build", title, evidence, advice
        )
    in_torch = tuple(theirs for ours, theirs in pairs if ours.fails and theirs)
    if failed(in_torch):
        return None  # The finding about the failure in PyTorch says so.
    if any(each.works for each in in_torch):
        title = f"{name} fails when rocmprobe calls it directly, and works in PyTorch"
        advice = "For programs that use PyTorch, the result in PyTorch counts."
        return Finding(check, "info", "unknown", "rocmprobe", title, quoted(broken), advice)
    layer = library_layer(run, broken) if name == "MIOpen" else "rocblas"
    title = f"{name} fails without PyTorch: {name}'s own fault"
    evidence = (*quoted(broken), *_commands(broken))
    advice = (
        f"Attach this report to a bug report for {name}. Another torch helps only if it has another {name}."
    )
    return Finding(check, "error", *blamed(run, broken, layer), title, evidence, advice)


def without_torch(results: Results) -> bool:
    """Return True if the run could only call the libraries directly, because there is no torch."""
    only = all(outcome.check in _CHECKS for outcome in results.outcomes)
    return only and results.machine.value("torch.kind") is None


def sentence(run: Evidence) -> str:
    """Return a sentence that says which libraries work without PyTorch."""
    states: dict[str, list[str]] = {}
    for check, (name, _) in _CHECKS.items():
        mine = [outcome for outcome in run.outcomes if outcome.check == check]
        if failed(mine) or any(outcome.works for outcome in mine):
            states.setdefault("fail" if failed(mine) else "work", []).append(name)
    found = [f"{' and '.join(names)} {word}{'s'[len(names) - 1 :]}" for word, names in states.items()]
    return f"Without PyTorch, {' and '.join(found) or 'nothing could be tested'}."


def _stopped(outcome: Outcome) -> bool:
    """Return True if the case failed, or did not run because a simpler check failed."""
    return outcome.fails or (outcome.state == "blocked" and str(outcome.failure).startswith("rung:"))


def _commands(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Return the first MIOpenDriver command line in the evidence, as a tuple of at most one line."""
    lines = [line for outcome in outcomes for line in outcome.evidence if "MIOpenDriver" in line]
    return tuple(lines[:1])


def with_direct_calls(findings: Iterable[Finding], run: Evidence) -> Iterator[Finding]:
    """Yield ``findings``. If convolution or GEMM fails, add the result without PyTorch to the evidence."""
    for finding in findings:
        check = _EXPLAINED.get(finding.id)
        note = _note(run, check) if check else ()
        yield replace(finding, evidence=(*finding.evidence, *note)) if note else finding


def _note(run: Evidence, check: str) -> tuple[str, ...]:
    name, same = _CHECKS[check]
    dtype = next(iter(run.dtypes), "") if same == "convolution" else "float32"
    asked = [ours for ours, theirs in _pairs(run, check) if theirs and theirs.fails]
    asked = [ours for ours in asked if ours.dtype == dtype]
    broken = failed(asked)
    if broken:
        says = f"{name} fails without PyTorch, too: {name}'s own fault"
        return (says, *quoted(broken, 1), *_commands(broken))
    if asked and all(ours.works for ours in asked):
        says = f"{name} computes this correctly without PyTorch"
        return (f"{says}: look at PyTorch's build or its bundled libraries",)
    return ()
