"""Advice on faults that no setting fixes, e.g. to install another build of PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

from rocmprobe.judge.assessment import failed
from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.causes import NO_CODE, OF_THE_BUILD
from rocmprobe.knowledge.compatibility import needless
from rocmprobe.knowledge.gpus import target
from rocmprobe.knowledge.installation import Plan, place_of, plan
from rocmprobe.knowledge.options import Option, options
from rocmprobe.knowledge.stacks import Installed, known_to_break, rocm_of, system_of
from rocmprobe.model.results import Finding, Gpu, Machine, OtherHelp, Outcome
from rocmprobe.text.versions import version_numbers

#: Causes that neither a setting nor another build fixes.
_PLATFORM = frozenset(
    {
        "kfd-permission", "kfd-missing", "gpu-unsupported-by-kfd", "pcie-atomics", "hsa-init-failed",
        "kernel-driver-mismatch", "kernel-driver-too-old", "kernel-driver-regression", "gpu-firmware-bug",
        "gpu-hang-reset", "wrong-torch-build", "override-not-effective", "integrated-gpu-first",
    }
)  # fmt: skip
#: Causes in the user's files, environment variables or batch sizes, which another build does not fix.
_OF_THE_USER = frozenset(
    {
        "miopen-db-unusable", "miopen-env-misparse", "miopen-solver-disabled-by-env", "vram-oom",
        "workspace-too-small", "cold-compile-slow",
    }
)  # fmt: skip
#: Maximum number of stacks in the advice. `rocmprobe install` lists all.
_STACKS = 6
_HOW = "`rocmprobe install --stack {}` prints the commands."


def other_build(machine: Machine, findings: Iterable[Finding], verdict: str) -> Optional[Plan]:
    """Return how to install the best PyTorch with code for the GPU, or None if that is not the remedy.

    It is the remedy if the installed one has no code for the GPU and no configuration works on the GPU.
    """
    missing = any(finding.severity == "error" and finding.cause in NO_CODE for finding in findings)
    place = place_of(machine)
    if verdict not in ("cpu", "none") or not missing or place is None or target(place.gfx) is None:
        return None
    gpu = next(each for each in machine.amd_gpus if each.native_isa.value == place.gfx)
    there = _installed(machine, gpu)
    for option in options(place.gfx, place.system, place.distribution, place.atomics):
        if option.status != "fails" and not _is_there(option, there):
            return plan(option, place)
    return None


def advice(run: Evidence, findings: Sequence[Finding], unchanged: bool) -> tuple[OtherHelp, ...]:
    """Return the steps that the user should take in addition to the recommended configuration.

    Each step has ``title``, ``text`` and ``source``.
    """
    found = [*_platform(findings), *(_builds(run, findings) if not unchanged else ())]
    return tuple({row["title"]: row for row in found}.values())


def _platform(findings: Sequence[Finding]) -> Iterator[OtherHelp]:
    for finding in findings:
        if finding.cause in _PLATFORM and finding.severity != "info" and finding.advice:
            yield _row(finding.title, finding.advice, _witness(finding))


def _witness(finding: Finding) -> str:
    return finding.evidence[0] if finding.evidence else f"finding {finding.id}"


def _builds(run: Evidence, findings: Sequence[Finding]) -> Iterator[OtherHelp]:
    failures = [each for each in findings if each.severity == "error" and each.cause not in OF_THE_BUILD]
    if failures and all(finding.cause in _OF_THE_USER for finding in failures):
        return
    broken = failed(outcome for outcome in run.outcomes if outcome.device == run.device)
    gpu = _gpu(run, broken[0]) if broken else None
    if gpu is None:
        return
    own = needless(run.machine, gpu)
    if own:
        yield _row("Remove the override", own.advice, own.sources[0])
        return
    machine = _installed(run.machine, gpu)
    for row in known_to_break(machine):
        yield _row(row.title, row.text, f"{row.source} ({row.date})")
    if machine.gfx == machine.effective and not any(each.cause in OF_THE_BUILD for each in findings):
        return
    others = (
        each for each in options(machine.gfx, machine.system or "linux") if not _is_there(each, machine)
    )
    for option in itertools.islice((each for each in others if each.status != "fails"), _STACKS):
        source, date, _ = option.sources[0]
        yield _row(option.title, f"{option.evidence} {_HOW.format(option.stack.name)}", f"{source} ({date})")


def _is_there(option: Option, machine: Installed) -> bool:
    if option.runs_as != machine.effective:
        return False
    named = (option.stack.torch, option.report.torch if option.report else "")
    return any(_release(each) == _release(machine.torch) for each in named if each and machine.torch)


def _release(torch: Optional[str]) -> tuple[str, tuple[int, ...]]:
    return ".".join(str(torch).split(".")[:2]), version_numbers(rocm_of(torch) or "")[:2]


def _gpu(run: Evidence, outcome: Outcome) -> Optional[Gpu]:
    """Return the AMD GPU that has the native and effective ISA of an outcome."""
    isas = outcome.native_isa, outcome.effective_isa
    cards = (gpu for gpu in run.machine.amd_gpus if outcome.native_isa)
    return next((gpu for gpu in cards if (gpu.native_isa.value, gpu.effective_isa.value) == isas), None)


def _installed(machine: Machine, gpu: Gpu) -> Installed:
    torch, system = machine.value("torch.version"), machine.value("rocm.version")
    return Installed(
        gpu.native_isa.value, gpu.effective_isa.value,
        rocm_of(torch) or (str(system) if system else None), str(torch) if torch else None,
        gpu.pcie_atomics.value,
        system_of(machine.value("os.name"), machine.value("kernel.release")),
    )  # fmt: skip


def _row(title: str, text: str, source: str) -> OtherHelp:
    return {"title": title, "text": text, "source": source}
