"""Findings from cases that ran in PyTorch (driver torch) and also without PyTorch (driver capi)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rocmprobe.judge.assessment import failed, quoted
from rocmprobe.judge.blame import blamed, library
from rocmprobe.judge.findings.primitives import joined
from rocmprobe.model.results import Finding, Outcome, Results

Pair = tuple[Outcome, Outcome]


def pairs(results: Results, setting: str = "default") -> list[Pair]:
    """Return (outcome of torch, outcome of capi) for each case under ``setting`` that both drivers ran."""
    by_question: dict[tuple[object, ...], dict[str, Outcome]] = {}
    for outcome in results.outcomes:
        if outcome.setting == setting:
            question = (outcome.device, outcome.check, outcome.problem, outcome.dtype, outcome.direction)
            by_question.setdefault(question, {})[outcome.driver] = outcome
    return [(each["torch"], each["capi"]) for each in by_question.values() if {"torch", "capi"} <= set(each)]


def disagreement(results: Results) -> Iterator[Finding]:
    """Yield findings about cases that fail with one driver and pass with the other."""
    asked = pairs(results)
    by_torch = [pair for pair in asked if failed(pair[:1]) and pair[1].works]
    by_capi = [pair for pair in asked if failed(pair[1:]) and pair[0].works]
    if by_torch:
        blocked = [direct for held, direct in asked if held.state == "blocked"]
        yield _of_torch(results, by_torch, [each for each in blocked if each.works])
    if by_capi:
        yield Finding(
            "driver-capi", "info", "unknown", "rocmprobe",
            f"{len(by_capi)} test(s) fail when rocmprobe calls the library directly, and pass in PyTorch",
            (*quoted(direct for _, direct in by_capi), *_copies(results)),
            "For programs that use PyTorch, the result in PyTorch counts.",
        )  # fmt: skip


def _of_torch(results: Results, found: list[Pair], beyond: Sequence[Outcome]) -> Finding:
    """Return a finding about the cases in ``found``, which fail only in PyTorch.

    ``beyond`` are cases that pass without PyTorch and were blocked in PyTorch.
    """
    outcomes = tuple(by_torch for by_torch, _ in found)
    in_library = any(outcome.check in ("convolution", "batch-norm") for outcome in outcomes)
    name = library(results) if in_library else "HIP or rocBLAS"
    copies = _copies(results)
    at_fault = f"{name} works when called directly, so the fault is in how PyTorch calls it"
    if copies:
        at_fault = f"another copy of {name} works, so the fault is in PyTorch's copy or in its calls"
    advice = "Try another build of torch. This report shows that the GPU and its libraries work."
    if beyond:
        checks = joined(list(dict.fromkeys(outcome.check for outcome in beyond)))
        advice += f" These checks could not run in PyTorch, but pass without it: {checks}."
    return Finding(
        "driver-torch", "error", blamed(results, outcomes, "torch-build")[0], "torch-build",
        f"{len(found)} test(s) fail in PyTorch and pass without it; {at_fault}",
        (*quoted(outcomes), *quoted((direct for _, direct in found), 1), *quoted(beyond, 2), *copies),
        advice,
    )  # fmt: skip


def _copies(results: Results) -> tuple[str, ...]:
    files: dict[str, dict[str, set[str]]] = {}
    for trial in results.trials:
        for name, paths in trial.mapped.items():
            files.setdefault(name, {}).setdefault(trial.driver, set()).update(paths)
    return tuple(
        f"{name}: torch has {', '.join(sorted(each['torch']))}; capi has {', '.join(sorted(each['capi']))}"
        for name, each in sorted(files.items())
        if {"torch", "capi"} <= set(each) and each["torch"] != each["capi"]
    )


def confirmed(findings: Iterable[Finding], results: Results) -> Iterator[Finding]:
    """Yield ``findings``, with more evidence in the finding "native-convolution".

    The added evidence names cases that also fail without PyTorch.
    """
    asked = [pair for pair in pairs(results) if pair[0].check == "convolution"]
    both = [direct for by_torch, direct in asked if failed((by_torch,)) and failed((direct,))]
    for finding in findings:
        if finding.id == "native-convolution" and both:
            same = (
                f"of {len(asked)} tests that ran with and without PyTorch, {len(both)} fail in both cases: "
            )
            note = f"{same}the fault is in {library(results)} itself"
            yield replace(finding, evidence=(*finding.evidence, note, *quoted(both, 2)))
        else:
            yield finding


def two_copies(results: Results) -> Iterator[Finding]:
    """Yield a finding if a process loaded two copies of one library."""
    copies = {
        f"{trial.driver}, {trial.setting}: {', '.join(paths)}": name
        for trial in results.trials
        for name, paths in sorted(trial.mapped.items())
        if len(paths) > 1
    }
    if copies:
        names = ", ".join(sorted(set(copies.values())))
        yield Finding(
            "two-copies", "warning", "library-path", "user-env",
            f"Two copies of one library in one process: {names}", tuple(copies)[:5],
            "Keep one copy: unset LD_LIBRARY_PATH, or remove the ROCm libraries that do not belong to torch.",
        )  # fmt: skip


def other_isa(results: Results) -> Iterator[Finding]:
    """Yield a finding if HIP and other sources report different chips for a device."""
    reported = results.machine.value("capi.devices")
    asked = {
        (each.device, each.effective_isa)
        for each in results.outcomes
        if (each.driver, each.setting) == ("capi", "default")
    }
    for device, isa in sorted(asked, key=str):
        number = device.partition(":")[2]
        if (
            not isa
            or not isinstance(reported, (list, tuple))
            or not number.isdigit()
            or int(number) >= len(reported)
        ):
            continue
        arch = str(reported[int(number)]).partition(":")[0]
        if arch and arch != isa:
            yield Finding(
                "hip-isa", "warning", "override-not-effective", "user-env",
                f"HIP reports {device} as {arch}, but the other sources on this machine say {isa}",
                (f"capi.devices: {arch}", f"effective ISA: {isa}"),
                "Check that HSA_OVERRIDE_GFX_VERSION reaches every process, and which GPUs are visible.",
            )  # fmt: skip
