"""Findings from facts about the machine, without any check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rocmprobe.judge.assessment import by_severity, device_of, failed
from rocmprobe.judge.findings.caches import caches
from rocmprobe.judge.findings.disagreements import disagreements
from rocmprobe.judge.findings.integrated_gpu import hiding, integrated_beside_a_card
from rocmprobe.judge.findings.wsl import wsl_findings
from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.compatibility import Combination, answer, needless, of_machine
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.options import options
from rocmprobe.knowledge.variables import (
    FOLKLORE,
    NOT_HERE,
    REJECTED,
    UNKNOWN,
    find,
    labels,
)
from rocmprobe.model.results import NATIVE, SCHEMA_VERSION, Fact, Finding, Gpu, Machine, Results

#: Kernel messages (kinds of ``dmesg.events``) after which a GPU is no longer reliable.
_GRAVE_EVENTS = frozenset(
    {
        "ring-timeout", "ring-reset-failed", "gpu-reset", "gpu-reset-succeeded", "gpu-reset-failed",
        "vram-lost", "page-fault", "init-failed", "mes-hang", "smu-hang", "compute-hang", "gpu-lost",
        "memory-error",
    }
)  # fmt: skip
#: Reasons why ROCm cannot open the compute driver, keyed by the value of the fact ``kfd.device``.
_CLOSED = {"no permission": "this user has no permission to open /dev/kfd", "absent": "there is no /dev/kfd"}
#: (severity, text) for an environment variable that does not work as intended, keyed by its label.
_IDLE = {
    UNKNOWN: ("warning", "is unknown to ROCm, MIOpen and torch"),
    REJECTED: ("warning", "has a value that is not accepted"),
    FOLKLORE: ("info", "exists in no release, so it has no effect"),
    NOT_HERE: ("info", "does not exist in the installed release"),
}


def _isa_mismatch(results: Results) -> Iterator[Finding]:
    for number, gpu in enumerate(results.machine.gpus):
        native, effective = gpu.native_isa.value, gpu.effective_isa.value
        if not native or not effective or native == effective:
            continue
        lacking = gpus.missing_features(native, effective)
        fits = answer(of_machine(results.machine, gpu), "silicon-fits-override")
        own = needless(results.machine, gpu)
        advice = (
            own.advice
            if own
            else f"{_wheels(native)}A torch built for {native} needs no override. Until you have "
            "one, use the configuration that `rocmprobe run` recommends: it was tested with the override."
        )
        advice = hiding(results.machine, gpu) or advice
        if fits is None:
            severity = "warning"
            risk = f"it is not known whether this chip can run code built for {effective}"
        elif fits.holds:
            severity, advice = "info", "Nothing to do."
            risk = f"this chip has all instructions of {effective}"
        else:
            severity = "error" if _hurt(results, gpu) else "warning"
            risk = f"code built for {effective} may fail, hang or compute wrong numbers on it"
        yield Finding(
            f"isa-mismatch-{number}",
            severity,
            "override-isa-mismatch",
            "user-env",
            f"{gpu.name.value or 'the GPU'} is {native} hardware that runs as {effective}: {risk}",
            (
                f"native ISA {native}, from {gpu.native_isa.source}",
                f"effective ISA {effective}, from {gpu.effective_isa.source}",
                *(lacking or ([f"{fits.says} ({fits.source})"] if fits and not fits.holds else ())),
                *(own.sources if own else ()),
            ),
            advice,
        )


def _hurt(results: Results, gpu: Gpu) -> bool:
    settings = {setting.name for setting in results.settings if setting.verdict in NATIVE}
    isas = gpu.native_isa.value, gpu.effective_isa.value
    return any(
        (outcome.native_isa, outcome.effective_isa) == isas
        and outcome.setting in settings
        and outcome.cause != "torch-unusable"
        for outcome in failed(results.outcomes)
    )


def _wrong_build(results: Results) -> Iterator[Finding]:
    cards, kind = results.machine.amd_gpus, results.machine.value("torch.kind")
    fits = answer(of_machine(results.machine, cards[0]), "torch-is-for-amd") if cards else None
    if fits and not fits.holds and kind:
        version = results.machine.value("torch.version")
        yield Finding(
            "wrong-torch-build",
            "warning" if _fell_back(results) and not all(card.apu.value for card in cards) else "info",
            "wrong-torch-build",
            "torch-build",
            f"torch {version} is a {kind} build: it cannot use the {cards[0].name.value or 'AMD GPU'}",
            (f"torch.kind {kind}, from {results.machine.facts['torch.kind'].source}",),
            "Install a ROCm build of torch, then run again: `rocmprobe install` prints the commands for this "
            "GPU. PyTorch's own index (https://download.pytorch.org/whl/) has builds for most chips.",
        )


def _fell_back(results: Results) -> bool:
    """Return True if a run with ``--device auto`` tested the CPU because no GPU was usable."""
    return results.options.get("device", "auto") == "auto" and device_of(results) in ("cpu", None)


def _wheels(native: str) -> str:
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


def _no_gpu(results: Results) -> Iterator[Finding]:
    machine, cards = results.machine, results.machine.amd_gpus
    rocm_torch, node = machine.value("torch.kind") == "rocm", machine.value("kfd.device")
    why = _CLOSED.get(str(node))
    # On WSL, programs reach the GPU in another way, which the rule ``wsl_findings`` checks.
    if not _fell_back(results) or machine.value("container.wsl") not in (None, "no"):
        return
    if not (cards or rocm_torch) or not (why or (rocm_torch and device_of(results) == "cpu")):
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
    yield Finding(
        "no-gpu",
        "error" if missed else "info",
        cause,
        layer,
        f"ROCm cannot reach a GPU: {why or 'none was found, and the CPU was tested'}",
        (
            f"/dev/kfd: {node}, from {machine.facts.get('kfd.device', Fact()).source or 'nowhere'}",
            f"AMD GPUs found: {len(cards)}",
        ),
        advice,
    )


def _join_groups(machine: Machine, contained: bool) -> str:
    needed = machine.value("access.groups_needed") or ["render", "video"]
    if contained:
        groups = " ".join(f"--group-add {name.split()[-1]}" for name in needed)
        return f"Start the container with `{groups}`."
    names = [name for name in needed if not name.startswith("gid ")] or ["render", "video"]
    return f"Run `sudo usermod -a -G {','.join(names)} $USER`, then log in again."


def _deep(results: Results) -> Iterator[Finding]:
    machine = results.machine
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


def _unlisted(results: Results) -> Iterator[Finding]:
    """Yield a finding about GPUs that amdgpu drives but its compute interface (KFD) does not list."""
    machine = results.machine
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
    said = [event for event in _events(machine) if event["kind"] in ("kfd-rejects-atomics", "kfd-skips-gpu")]
    said = [event for event in said if any(_names(event["line"], gpu) for gpu in left_out)]
    atomics = any(event["kind"] == "kfd-rejects-atomics" for event in said)
    missed = any(not gpu.apu.value for gpu in left_out)
    yield Finding(
        "gpu-unlisted",
        "warning" if missed else "info",
        "pcie-atomics" if atomics else "gpu-unsupported-by-kfd",
        "hardware" if atomics else "driver",
        f"The compute driver does not list {_named(left_out)}, so ROCm cannot use it",
        (machine.facts["kfd.unlisted"].source, *(event["line"] for event in said)),
        "The card's slot has no PCIe atomics. Put the card into a slot connected directly to the processor."
        if atomics and missed
        else "A newer kernel may list it. Some integrated and old GPUs are never listed.",
    )


def _named(cards: list[Gpu]) -> str:
    return ", ".join(dict.fromkeys(str(gpu.name.value or gpu.native_isa.value) for gpu in cards))


def _names(line: str, gpu: Gpu) -> bool:
    pci_id = str(gpu.pci_id.value).replace("0x", "")
    return f"1002:{pci_id}" in line.lower() or str(gpu.address.value) in line


def _kernel_log(results: Results) -> Iterator[Finding]:
    grave = [event for event in _events(results.machine) if event["kind"] in _GRAVE_EVENTS]
    if grave:
        kinds = ", ".join(dict.fromkeys(event["kind"] for event in grave))
        yield Finding(
            "kernel-log",
            "warning",
            "gpu-hang-reset",
            "driver",
            f"The kernel has logged GPU faults since boot: {kinds}",
            tuple(f"{event['count']} x {event['line']}" for event in grave[:8]),
            "Restart the machine before you trust a result: after a reset, wrong results can continue.",
        )


def _events(machine: Machine) -> list[dict[str, Any]]:
    return machine.value("dmesg.events") or []


def _variables(results: Results) -> Iterator[Finding]:
    machine = results.machine
    for name, label in labels(machine).items():
        # Prefer the label that detection stored as a fact. If the results are redacted, ``labels`` judged a
        # placeholder instead of the variable's value.
        fact = machine.facts.get(f"variables.{name}", Fact(label.verdict, label.why))
        verdict = str(fact.value).partition(", ")[0]
        if verdict not in _IDLE:
            continue
        severity, what = _IDLE[verdict]
        row = find(name)
        fatal = verdict == REJECTED and name.startswith(OVERRIDE)
        misread = verdict == REJECTED and row is not None and row.of == "miopen"
        yield Finding(
            f"variable-{name}",
            "error" if fatal else severity,
            "miopen-env-misparse" if misread else "override-not-effective" if fatal else "benign-warning",
            "user-env",
            f"{name} {what}",
            (f"{name}={machine.variables[name].value}", fact.source),
            f"Did you mean {label.nearest}?" if verdict == UNKNOWN and label.nearest else "Unset it.",
        )


def _missing_code(results: Results) -> Iterator[Finding]:
    machine = results.machine
    unlisted = machine.value("kfd.unlisted") or []
    cards = [gpu for gpu in machine.amd_gpus if gpu.address.value not in unlisted and gpu.effective_isa.value]
    for library, relation, layer, cause in (
        ("torch", "torch-has-code", "torch-build", "arch-not-in-wheel"),
        ("rocblas", "rocblas-has-kernels", "rocblas", "rocblas-missing-arch"),
    ):
        targets = machine.facts.get(f"{library}.targets", Fact())
        lacking = [gpu for gpu in cards if targets.value and _lacks(machine, gpu, relation)]
        for isa in dict.fromkeys(gpu.effective_isa.value for gpu in lacking):
            names = _named([gpu for gpu in lacking if gpu.effective_isa.value == isa])
            own = next(filter(None, (needless(machine, gpu) for gpu in lacking)), None)
            # If there is a supported card, users seldom want to use the integrated GPU.
            spare = len(lacking) < len(cards) and all(gpu.apu.value for gpu in lacking)
            yield Finding(
                f"{library}-lacks-{isa}",
                "info" if spare else "warning",
                cause,
                layer,
                f"The installed {library} contains no code for {isa} ({names})",
                (f"{library}.targets: {' '.join(targets.value)}, from {targets.source}",),
                own.advice if own else f"{_wheels(isa)}See `rocmprobe list gpus`.",
            )


def _lacks(machine: Machine, gpu: Gpu, relation: str) -> bool:
    found = answer(of_machine(machine, gpu), relation)
    return found is not None and found.certain and not found.holds


def _disagreements(results: Results) -> Iterator[Finding]:
    for number, (what, one, other) in enumerate(disagreements(results.machine)):
        yield Finding(
            f"disagreement-{number}",
            "info",
            "unknown",
            "torch-build",
            f"{what[0].upper()}{what[1:]}: {_short(one)} against {_short(other)}",
            (f"{_short(one)}, from {one.source}", f"{_short(other)}, from {other.source}"),
            "Trust a value from a running program more than a value from a file.",
        )


def _short(fact: Fact) -> str:
    return " ".join(fact.value) if isinstance(fact.value, list) else str(fact.value)


def _other_libraries(results: Results) -> Iterator[Finding]:
    """Yield findings about packages and torch switches that send operators to hipDNN or hipBLASLt."""
    machine = results.machine
    for package, version in (machine.value("torch.reroutes") or {}).items():
        yield Finding(
            f"reroutes-{package}",
            "info",
            "benign-warning",
            "torch-build",
            f"{package} is installed: its install() sends F.conv2d and F.conv3d to hipDNN",
            (f"{package} {version or 'of unknown version'}, from {machine.facts['torch.reroutes'].source}",),
            f"Do not call {package}.install() in a program with the recommended configuration. rocmprobe "
            "does not test hipDNN, and the bypass gets only the convolutions that hipDNN rejects.",
        )
    switches = machine.value("deep.switches") or {}
    if switches.get("hipdnn.enabled") is True:
        yield Finding(
            "hipdnn-enabled",
            "warning",
            "unknown",
            "torch-build",
            "torch sends batch norm and convolutions to hipDNN instead of MIOpen",
            ("torch.backends.hipdnn.enabled is True",),
            "Set `torch.backends.hipdnn.enabled = False` in the program. rocmprobe tests MIOpen, and hipDNN "
            "ignores most MIOpen settings.",
        )
    targets, libraries = machine.facts.get("hipblaslt.targets", Fact()), ("cublaslt", "hipblaslt")
    if switches.get("cuda.preferred_blas_library") in libraries and targets.value:
        for isa in dict.fromkeys(
            gpu.effective_isa.value for gpu in machine.amd_gpus if gpu.effective_isa.value
        ):
            if isa not in targets.value:
                yield Finding(
                    f"hipblaslt-preferred-{isa}",
                    "warning",
                    "hipblaslt-missing-arch",
                    "rocblas",
                    f"torch prefers hipBLASLt, which has no kernels for {isa} here",
                    (
                        f"hipblaslt.targets: {' '.join(targets.value)}, from {targets.source}",
                        "torch.backends.cuda.preferred_blas_library() is hipBLASLt",
                    ),
                    "Set TORCH_BLAS_PREFER_HIPBLASLT=0 before Python starts, or call "
                    '`torch.backends.cuda.preferred_blas_library("cublas")` first. Then torch uses rocBLAS.',
                )


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


def machine_findings(machine: Machine) -> tuple[Finding, ...]:
    """Return the findings that follow from the facts alone, the most severe first."""
    results = Results(
        schema_version=SCHEMA_VERSION, rocmprobe="", started="", finished=None, partial=False, simulated=None,
        options={}, machine=machine, settings=(), problems=(), trials=(), outcomes=(),
    )  # fmt: skip
    return by_severity(finding for rule in MACHINE_RULES for finding in rule(results))


def older_than_the_chip(results: Results) -> Iterator[Finding]:
    """Yield findings if Linux or ROCm is too old to support the chip."""
    machine, seen = results.machine, set()
    for gpu in machine.amd_gpus:
        asked = of_machine(machine, gpu)
        found = [*_linux(machine, gpu, asked), *_rocm(results, gpu, asked)]
        for each in found:
            if each.id not in seen:
                seen.add(each.id)
                yield each


def _linux(machine: Machine, gpu: Gpu, asked: Combination) -> Iterator[Finding]:
    knows = answer(asked, "kernel-knows-chip")
    # If KFD lists the chip, the driver supports the chip even on an old version of Linux, because a
    # distribution or DKMS can install a newer driver.
    if knows is None or knows.holds or gpu.order.value is not None or gpu.cus.value is not None:
        return
    if machine.value("amdgpu.origin") == "dkms":
        return
    yield Finding(
        f"kernel-older-than-{asked.gfx}",
        _severity(gpu),
        "kernel-driver-too-old",
        "driver",
        f"The kernel is older than the chip: {knows.says}",
        (f"kernel.release {asked.kernel}, from {machine.facts['kernel.release'].source}", knows.source),
        "Install a newer kernel from your distribution, or AMD's driver (amdgpu-dkms).",
    )


def _rocm(results: Results, gpu: Gpu, asked: Combination) -> Iterator[Finding]:
    knows, code = answer(asked, "runtime-knows-chip"), answer(asked, "torch-has-code")
    # A torch that was built for the chip has a runtime that knows the chip.
    if knows is None or knows.holds or (code and code.holds) or _worked(results, gpu):
        return
    machine = results.machine
    versions = ("torch.version", "torch.hip", "rocm.version")
    facts = {name: machine.facts[name] for name in versions if name in machine.facts}
    witness, fact = next(((name, fact) for name, fact in facts.items() if fact.value), ("", Fact()))
    yield Finding(
        f"rocm-older-than-{asked.gfx}",
        _severity(gpu),
        "rocm-too-old-for-gpu",
        "hip",
        f"ROCm is older than the chip: {knows.says}",
        (f"{witness} {fact.value}, from {fact.source}", knows.source),
        "Install a torch for a newer ROCm: `rocmprobe install` lists builds with code for this GPU.",
    )


def _severity(gpu: Gpu) -> str:
    """Return "info" for an integrated GPU, else "warning"."""
    return "info" if gpu.apu.value else "warning"


def _worked(results: Results, gpu: Gpu) -> bool:
    settings = {setting.name for setting in results.settings if setting.verdict in NATIVE}
    return (device_of(results) or "cpu") != "cpu" and any(
        outcome.works
        and outcome.setting in settings
        and outcome.native_isa == gpu.native_isa.value
        and outcome.device != "cpu"
        for outcome in results.outcomes
    )


MACHINE_RULES = (
    _isa_mismatch, _wrong_build, _no_gpu, _deep, _missing_code, _unlisted, integrated_beside_a_card,
    wsl_findings, older_than_the_chip, _kernel_log, _variables, _disagreements,
    _other_libraries, _databases, caches,
)  # fmt: skip
