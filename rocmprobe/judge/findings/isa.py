"""Finding about a GPU that runs as another chip (ISA override)."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.assessment import failed
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.integrated_gpu import hiding
from rocmprobe.judge.findings.torch_build import wheels
from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.compatibility import answer, needless, of_machine
from rocmprobe.model.results import NATIVE, Finding, Gpu


def isa_mismatch(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each GPU whose effective ISA differs from its native ISA."""
    for number, gpu in enumerate(run.machine.gpus):
        native, effective = gpu.native_isa.value, gpu.effective_isa.value
        if not native or not effective or native == effective:
            continue
        lacking = gpus.missing_features(native, effective)
        fits = answer(of_machine(run.machine, gpu), "silicon-fits-override")
        own = needless(run.machine, gpu)
        advice = (
            own.advice
            if own
            else f"{wheels(native)}A torch built for {native} needs no override. Until you have "
            "one, use the configuration that `rocmprobe run` recommends: it was tested with the override."
        )
        advice = hiding(run.machine, gpu) or advice
        if fits is None:
            severity = "warning"
            risk = f"it is not known whether this chip can run code built for {effective}"
        elif fits.holds:
            severity, advice = "info", "Nothing to do."
            risk = f"this chip has all instructions of {effective}"
        else:
            severity = "error" if _hurt(run, gpu) else "warning"
            risk = f"code built for {effective} may fail, hang or compute wrong numbers on it"
        title = f"{gpu.name.value or 'the GPU'} is {native} hardware that runs as {effective}: {risk}"
        evidence = (
            f"native ISA {native}, from {gpu.native_isa.source}",
            f"effective ISA {effective}, from {gpu.effective_isa.source}",
            *(lacking or ([f"{fits.says} ({fits.source})"] if fits and not fits.holds else ())),
            *(own.sources if own else ()),
        )
        yield Finding(
            f"isa-mismatch-{number}", severity, "override-isa-mismatch", "user-env", title, evidence, advice
        )


def _hurt(run: Evidence, gpu: Gpu) -> bool:
    settings = {setting.name for setting in run.settings if setting.verdict in NATIVE}
    isas = gpu.native_isa.value, gpu.effective_isa.value
    return any(
        (outcome.native_isa, outcome.effective_isa) == isas
        and outcome.setting in settings
        and outcome.failure != "torch-unusable"
        for outcome in failed(run.outcomes)
    )
