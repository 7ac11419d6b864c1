"""Findings about a torch, or another library, that was not built for the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.integrated_gpu import named
from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.compatibility import answer, needless, of_machine
from rocmprobe.knowledge.options import options
from rocmprobe.model.results import Fact, Finding, Gpu, Machine


def wrong_build(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if torch was not built for AMD GPUs."""
    cards, kind = run.machine.amd_gpus, run.machine.value("torch.kind")
    fits = answer(of_machine(run.machine, cards[0]), "torch-is-for-amd") if cards else None
    if fits and not fits.holds and kind:
        version = run.machine.value("torch.version")
        title = f"torch {version} is a {kind} build: it cannot use the {cards[0].name.value or 'AMD GPU'}"
        evidence = (f"torch.kind {kind}, from {run.machine.facts['torch.kind'].source}",)
        advice = (
            "Install a ROCm build of torch, then run again: `rocmprobe install` prints the commands for this "
            "GPU. PyTorch's own index (https://download.pytorch.org/whl/) has builds for most chips."
        )
        severity = "warning" if fell_back(run) and not all(card.apu.value for card in cards) else "info"
        yield Finding(
            "wrong-torch-build", severity, "wrong-torch-build", "torch-build", title, evidence, advice
        )


def fell_back(run: Evidence) -> bool:
    """Return True if a run with ``--device auto`` tested the CPU because no GPU was usable."""
    return run.results.options.get("device", "auto") == "auto" and run.device in ("cpu", None)


def wheels(native: str) -> str:
    """Return a sentence about builds of PyTorch with code for an ISA."""
    target = gpus.target(native)
    if target is None:
        return ""
    if target.wheels:
        return f"Official PyTorch wheels with code for {native}: {target.wheels}. "
    none = f"No official PyTorch wheel contains code for {native}. "
    own = next((each for each in options(native) if each.status != "fails" and not each.lent), None)
    if own is None:
        return none
    return f"{none}{own.stack.title}: {own.evidence} `rocmprobe install` prints the commands. "


def torch_sees_no_gpu(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if torch fails to detect GPUs that the compute driver lists."""
    machine = run.machine
    error, available = machine.facts.get("deep.error"), machine.facts.get("deep.available", Fact())
    listed = [gpu for gpu in machine.amd_gpus if gpu.cus.value is not None]
    hidden = any(name.endswith("_VISIBLE_DEVICES") for name in machine.variables)
    if error:
        title, evidence = "torch failed while detecting GPUs", (str(error.value),)
    elif available.value is False and machine.value("deep.hip") and listed and not hidden:
        title = f"torch sees no GPU, although the compute driver lists {len(listed)}"
        evidence = (f"{available.source}: False",)
    else:
        return
    yield Finding(
        "torch-asked", "error", "unknown", "torch-build", title, evidence, "See the findings above."
    )


def missing_code(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each library without code for a GPU."""
    machine = run.machine
    unlisted = machine.value("kfd.unlisted") or []
    cards = [gpu for gpu in machine.amd_gpus if gpu.address.value not in unlisted and gpu.effective_isa.value]
    for library, relation, layer, cause in (
        ("torch", "torch-has-code", "torch-build", "arch-not-in-wheel"),
        ("rocblas", "rocblas-has-kernels", "rocblas", "rocblas-missing-arch"),
    ):
        targets = machine.facts.get(f"{library}.targets", Fact())
        lacking = [gpu for gpu in cards if targets.value and _lacks(machine, gpu, relation)]
        for isa in dict.fromkeys(gpu.effective_isa.value for gpu in lacking):
            names = named([gpu for gpu in lacking if gpu.effective_isa.value == isa])
            own = next(filter(None, (needless(machine, gpu) for gpu in lacking)), None)
            # If there is a supported card, users seldom want to use the integrated GPU.
            spare = len(lacking) < len(cards) and all(gpu.apu.value for gpu in lacking)
            title = f"The installed {library} contains no code for {isa} ({names})"
            evidence = (f"{library}.targets: {' '.join(targets.value)}, from {targets.source}",)
            advice = own.advice if own else f"{wheels(isa)}See `rocmprobe list gpus`."
            severity = "info" if spare else "warning"
            yield Finding(f"{library}-lacks-{isa}", severity, cause, layer, title, evidence, advice)


def _lacks(machine: Machine, gpu: Gpu, relation: str) -> bool:
    found = answer(of_machine(machine, gpu), relation)
    return found is not None and found.certain and not found.holds
