"""Findings about GPUs that ROCm cannot reach."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.integrated_gpu import named
from rocmprobe.judge.findings.kernel_log import events
from rocmprobe.judge.findings.torch_build import fell_back
from rocmprobe.model.results import Fact, Finding, Gpu, Machine

#: Reasons why ROCm cannot open the compute driver, keyed by the value of the fact ``kfd.device``.
_CLOSED = {"no permission": "this user has no permission to open /dev/kfd", "absent": "there is no /dev/kfd"}


def no_gpu(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if ROCm cannot open a GPU."""
    machine, cards = run.machine, run.machine.amd_gpus
    rocm_torch, node = machine.value("torch.kind") == "rocm", machine.value("kfd.device")
    why = _CLOSED.get(str(node))
    # On WSL, programs reach the GPU in another way, which the rule ``wsl_findings`` checks.
    if not fell_back(run) or machine.value("container.wsl") not in (None, "no"):
        return
    if not (cards or rocm_torch) or not (why or (rocm_torch and run.device == "cpu")):
        return
    contained = machine.value("container.kind") not in (None, "none")
    if node == "no permission":
        cause, layer, advice = "kfd-permission", "permissions", _join_groups(machine, contained)
    else:
        cause, layer = "kfd-missing", "driver"
        advice = "Run `sudo modprobe amdgpu` to load the driver. The kernel log says why it is not loaded."
        if contained:
            advice = "Start the container with `--device /dev/kfd --device /dev/dri`."
    missed = rocm_torch or any(not card.apu.value for card in cards)
    title = f"ROCm cannot reach a GPU: {why or 'none was found, and the CPU was tested'}"
    evidence = (
        f"/dev/kfd: {node}, from {machine.facts.get('kfd.device', Fact()).source or 'nowhere'}",
        f"AMD GPUs found: {len(cards)}",
    )
    yield Finding("no-gpu", "error" if missed else "info", cause, layer, title, evidence, advice)


def _join_groups(machine: Machine, contained: bool) -> str:
    needed = machine.value("access.groups_needed") or ["render", "video"]
    if contained:
        groups = " ".join(f"--group-add {name.split()[-1]}" for name in needed)
        return f"Start the container with `{groups}`."
    names = [name for name in needed if not name.startswith("gid ")] or ["render", "video"]
    return f"Run `sudo usermod -a -G {','.join(names)} $USER`, then log in again."


def unlisted(run: Evidence) -> Iterator[Finding]:
    """Yield a finding about GPUs that amdgpu drives but its compute interface (KFD) does not list."""
    machine = run.machine
    addresses = machine.value("kfd.unlisted") or []
    # In a container with access to only some GPUs, the KFD nodes of the other GPUs are unreadable. KFD does
    # list these GPUs.
    if machine.value("kfd.device") != "present" or machine.value("kfd.refused"):
        return
    left_out = [
        gpu for gpu in machine.amd_gpus if gpu.address.value in addresses and gpu.driver.value == "amdgpu"
    ]
    if not left_out:
        return
    said = [event for event in events(machine) if event["kind"] in ("kfd-rejects-atomics", "kfd-skips-gpu")]
    said = [event for event in said if any(_names(event["line"], gpu) for gpu in left_out)]
    atomics = any(event["kind"] == "kfd-rejects-atomics" for event in said)
    missed = any(not gpu.apu.value for gpu in left_out)
    title = f"The compute driver does not list {named(left_out)}, so ROCm cannot use it"
    evidence = (machine.facts["kfd.unlisted"].source, *(event["line"] for event in said))
    advice = (
        "The card's slot has no PCIe atomics. Put the card into a slot connected directly to the processor."
        if atomics and missed
        else "A newer kernel may list it. Some integrated and old GPUs are never listed."
    )
    severity = "warning" if missed else "info"
    cause = "pcie-atomics" if atomics else "gpu-unsupported-by-kfd"
    layer = "hardware" if atomics else "driver"
    yield Finding("gpu-unlisted", severity, cause, layer, title, evidence, advice)


def _names(line: str, gpu: Gpu) -> bool:
    pci_id = str(gpu.pci_id.value).replace("0x", "")
    return f"1002:{pci_id}" in line.lower() or str(gpu.address.value) in line
