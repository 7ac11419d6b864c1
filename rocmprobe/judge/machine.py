"""Findings from facts: what is wrong with a machine before anything is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rocmprobe import gpus
from rocmprobe.detect.disagreements import disagreements
from rocmprobe.judge.evidence import NATIVE, by_severity, device_of, failed
from rocmprobe.model import SCHEMA_VERSION, Fact, Finding, Gpu, Machine, Results
from rocmprobe.variables import FOLKLORE, NOT_HERE, REJECTED, UNKNOWN, labels

#: Kernel messages (kinds of ``dmesg.events``) after which a GPU is not what it was.
_GRAVE = frozenset(
    {
        "ring-timeout", "ring-reset-failed", "gpu-reset", "gpu-reset-succeeded", "gpu-reset-failed",
        "vram-lost", "page-fault", "init-failed", "mes-hang", "smu-hang", "compute-hang", "gpu-lost",
        "memory-error",
    }
)  # fmt: skip
#: What keeps ROCm from the compute driver, by the fact ``kfd.device``.
_CLOSED = {"no permission": "this user may not open /dev/kfd", "absent": "there is no /dev/kfd"}
#: What becomes of a variable that does not do what it was set for, by its label.
_IDLE = {
    UNKNOWN: ("warning", "is unknown to ROCm, MIOpen and torch"),
    REJECTED: ("warning", "has a value that is not taken"),
    FOLKLORE: ("info", "exists in no release: it has no effect"),
    NOT_HERE: ("info", "does not exist in the installed release"),
}


def _isa_mismatch(results: Results) -> Iterator[Finding]:
    for number, gpu in enumerate(results.machine.gpus):
        native, effective = gpu.native_isa.value, gpu.effective_isa.value
        if not native or not effective or native == effective:
            continue
        lacking = gpus.missing_features(native, effective)
        known = gpus.family(native) is not None and gpus.family(effective) is not None
        advice = (
            f"{_wheels(native)}A torch built for {native} needs no override. Until then use the "
            "configuration that `rocmprobe run` recommends, which is checked as the machine is."
        )
        if lacking:
            severity = "error" if _hurt(results, gpu) else "warning"
            risk = f"code built for {effective} may fail, hang or compute wrong numbers on it"
        elif known:
            severity, advice = "info", "Nothing to do."
            risk = f"its instructions cover those of {effective}"
        else:
            severity = "warning"
            risk = f"whether it can run code built for {effective} is not known here"
        yield Finding(
            f"isa-mismatch-{number}",
            severity,
            "override-isa-mismatch",
            "user-env",
            f"{gpu.name.value or 'the GPU'} is {native} silicon that pretends to be {effective}: {risk}",
            (
                f"native ISA {native}, from {gpu.native_isa.source}",
                f"effective ISA {effective}, from {gpu.effective_isa.source}",
                *lacking,
            ),
            advice,
        )


def _hurt(results: Results, gpu: Gpu) -> bool:
    """Whether anything failed on this GPU that may run code which came with torch or ROCm."""
    settings = {setting.name for setting in results.settings if setting.verdict in NATIVE}
    isas = gpu.native_isa.value, gpu.effective_isa.value
    return any(
        (outcome.native_isa, outcome.effective_isa) == isas and outcome.setting in settings
        for outcome in failed(results.outcomes)
    )


def _wrong_build(results: Results) -> Iterator[Finding]:
    cards = [gpu for gpu in results.machine.gpus if gpu.vendor.value == "amd"]
    kind = results.machine.value("torch.kind")
    if cards and kind not in ("rocm", None):
        version = results.machine.value("torch.version")
        # Who asked for the CPU, or has another GPU at work, knows that the AMD card is left out.
        fell_back = results.options.get("device", "auto") == "auto" and device_of(results) in ("cpu", None)
        yield Finding(
            "wrong-torch-build",
            "warning" if fell_back else "info",
            "wrong-torch-build",
            "torch-build",
            f"torch {version} is a {kind} build: it cannot use the {cards[0].name.value or 'AMD GPU'}",
            (f"torch.kind {kind}, from {results.machine.facts['torch.kind'].source}",),
            "Install a ROCm build of torch from PyTorch's wheel index (https://download.pytorch.org/whl/), "
            "then run again.",
        )


def _wheels(native: str) -> str:
    """Which wheels hold code for an ISA, as far as that matters to somebody who overrides it."""
    target = gpus.target(native)
    if target is None:
        return ""
    if target.wheels:
        return f"Official PyTorch wheels with code for {native}: {target.wheels}. "
    none = f"No official PyTorch wheel holds code for {native}. "
    if not target.amd_wheels:
        return none
    return none + "AMD's own multi-arch index names it (not tried by rocmprobe). "


def _no_gpu(results: Results) -> Iterator[Finding]:
    """An AMD GPU, or a torch made for one, and no way to it."""
    machine, device = results.machine, device_of(results)
    if results.options.get("device", "auto") != "auto" or device not in ("cpu", None):
        return
    cards = [gpu for gpu in machine.gpus if gpu.vendor.value == "amd"]
    rocm_torch = machine.value("torch.kind") == "rocm"
    node = machine.value("kfd.device")
    why = _CLOSED.get(str(node))
    if not (cards or rocm_torch) or not (why or (rocm_torch and device == "cpu")):
        return
    if node == "no permission":
        cause, layer, advice = "kfd-permission", "permissions", _join_groups(machine)
    else:
        cause, layer = "kfd-missing", "driver"
        advice = "Load the amdgpu driver (modprobe amdgpu); the kernel's log says why it is not loaded."
        if machine.value("container.kind") not in (None, "none"):
            advice = "Start the container with --device /dev/kfd --device /dev/dri."
    yield Finding(
        "no-gpu",
        "error",
        cause,
        layer,
        f"ROCm has no way to a GPU: {why or 'none was found, and the CPU was tested'}",
        (
            f"/dev/kfd: {node}, from {machine.facts.get('kfd.device', Fact()).source or 'nowhere'}",
            f"AMD GPUs found: {len(cards)}",
            *_tool_messages(machine),
        ),
        advice,
    )


def _join_groups(machine: Machine) -> str:
    groups = machine.value("access.groups_needed") or ["render", "video"]
    return f"sudo usermod -a -G {','.join(groups)} $USER, then log in again."


def _tool_messages(machine: Machine) -> Iterator[str]:
    for tool in ("rocminfo", "rocm_smi", "amd_smi"):
        if machine.value(f"{tool}.meaning"):
            yield f"{tool.replace('_', '-')}: {machine.value(f'{tool}.meaning')}"


def _unlisted(results: Results) -> Iterator[Finding]:
    """GPUs that the kernel shows on PCI and keeps from ROCm."""
    machine = results.machine
    addresses = machine.value("kfd.unlisted") or []
    if not addresses or machine.value("kfd.device") != "present":
        return
    said = [event for event in _events(machine) if event["kind"] in ("kfd-rejects-atomics", "kfd-skips-gpu")]
    atomics = any(event["kind"] == "kfd-rejects-atomics" for event in said)
    yield Finding(
        "gpu-unlisted",
        "warning",
        "pcie-atomics" if atomics else "gpu-unsupported-by-kfd",
        "hardware" if atomics else "driver",
        f"The compute driver leaves out {len(addresses)} GPU(s): ROCm cannot use them",
        (machine.facts["kfd.unlisted"].source, *(event["line"] for event in said)),
        "Put the card into a slot wired to the processor: its present slot carries no PCIe atomics."
        if atomics
        else "A newer kernel may know it; an integrated or old GPU may never be listed.",
    )


def _kernel_log(results: Results) -> Iterator[Finding]:
    grave = [event for event in _events(results.machine) if event["kind"] in _GRAVE]
    if grave:
        kinds = ", ".join(dict.fromkeys(event["kind"] for event in grave))
        yield Finding(
            "kernel-log",
            "warning",
            "gpu-hang-reset",
            "driver",
            f"The kernel has had trouble with the GPU since it started: {kinds}",
            tuple(f"{event['count']} x {event['line']}" for event in grave[:8]),
            "Restart the machine before trusting a result: after a reset a GPU may go on answering wrongly.",
        )


def _events(machine: Machine) -> list[dict[str, Any]]:
    return machine.value("dmesg.events") or []


def _variables(results: Results) -> Iterator[Finding]:
    """Variables that do nothing of what they were set for."""
    for name, label in labels(results.machine).items():
        # A name that the catalogue merely lacks is nobody's mistake.
        merely_missing = label.verdict == UNKNOWN and not (label.nearest or label.complete)
        if label.verdict not in _IDLE or merely_missing:
            continue
        severity, what = _IDLE[label.verdict]
        yield Finding(
            f"variable-{name}",
            severity,
            "miopen-env-misparse" if label.verdict == REJECTED else "benign-warning",
            "user-env",
            f"{name} {what}",
            (f"{name}={results.machine.variables[name].value}", label.why),
            f"Did you mean {label.nearest}?" if label.nearest else "Unset it.",
        )


def _disagreements(results: Results) -> Iterator[Finding]:
    """Two witnesses of one fact that say different things; missing code is the gravest of them."""
    overridden = any(gpu.native_isa.value != gpu.effective_isa.value for gpu in results.machine.gpus)
    for number, (what, one, other) in enumerate(disagreements(results.machine)):
        severity, cause, layer, advice = "info", "unknown", "torch-build", ""
        if what.startswith("code for the native"):
            # Under an override the code of the effective ISA runs; that of the silicon is not needed.
            severity = "info" if overridden else "warning"
        elif what.startswith("code for the effective"):
            severity = "warning"
        if what.startswith("code for"):
            rocblas = what.endswith("rocblas")
            cause = "rocblas-missing-arch" if rocblas else "arch-not-in-wheel"
            layer = "rocblas" if rocblas else "torch-build"
            advice = "Use a build that holds it; see `rocmprobe list gpus` for what official wheels hold."
        yield Finding(
            f"disagreement-{number}",
            severity,
            cause,
            layer,
            f"{what[0].upper()}{what[1:]}: {_short(one)} against {_short(other)}",
            (f"{_short(one)}, from {one.source}", f"{_short(other)}, from {other.source}"),
            advice or "Trust what the running program says before what files say.",
        )


def _short(fact: Fact) -> str:
    return " ".join(fact.value) if isinstance(fact.value, list) else str(fact.value)


def _databases(results: Results) -> Iterator[Finding]:
    for name in ("miopen.user_db", "miopen.kernel_cache"):
        fact = results.machine.facts.get(name, Fact())
        place = fact.value or {}
        if not place.get("network") and place.get("writable", True):
            continue
        if not results.machine.value("miopen.version"):
            continue
        fault = f"is on {place['filesystem']}" if place.get("network") else "cannot be written"
        yield Finding(
            name.replace(".", "-").replace("_", "-"),
            "warning",
            "miopen-db-unusable",
            "miopen-find",
            f"MIOpen's {'user database' if name.endswith('db') else 'kernel cache'} {fault}",
            (f"{place['path']}: {place['filesystem']}", fact.source),
            "Point MIOPEN_USER_DB_PATH and MIOPEN_CUSTOM_CACHE_DIR to a folder on a local disk.",
        )


MACHINE_RULES = (
    _isa_mismatch, _wrong_build, _no_gpu, _unlisted, _kernel_log, _variables, _disagreements, _databases,
)  # fmt: skip


def machine_findings(machine: Machine) -> tuple[Finding, ...]:
    """What the facts alone tell, the gravest first."""
    results = Results(
        schema_version=SCHEMA_VERSION, rocmprobe="", started="", finished=None, partial=False, simulated=None,
        options={}, machine=machine, settings=(), problems=(), trials=(), outcomes=(),
    )  # fmt: skip
    return by_severity(finding for rule in MACHINE_RULES for finding in rule(results))
