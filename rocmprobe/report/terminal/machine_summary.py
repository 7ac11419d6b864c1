"""Summary of a machine on a terminal: GPUs, findings and the most important software."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rocmprobe.knowledge.gpus import NOT_FOUND
from rocmprobe.knowledge.variables import DEFAULT, EFFECTIVE
from rocmprobe.model.cards import gpu_name, poses
from rocmprobe.model.results import Fact, Finding, Gpu, Machine
from rocmprobe.model.telemetry import QUANTITIES
from rocmprobe.report.terminal.findings import print_findings, styled
from rocmprobe.text import readable as text

#: Facts that maintainers request most often, in the order of printing. Other facts are only in the JSON.
_SOFTWARE = (
    "os.name", "kernel.release", "container.kind", "wsl.librocdxg", "wsl.dids", "cpu.name", "memory.bytes",
    "kfd.device", "access.groups_needed", "amdgpu.version", "amdgpu.origin", "dmesg.events",
    "rocm.version", "rocm.installs", "hip.version", "rocblas.targets",
    "rocminfo.message",
    "miopen.version", "miopen.find_db", "miopen.perf_db", "miopen.user_db",
    "torch.version", "torch.build", "torch.hip", "torch.targets", "torch.reroutes",
    "deep.available", "deep.arch_list", "deep.library", "deep.devices", "deep.switches", "deep.error",
)  # fmt: skip
#: Facts that change over time, e.g. clocks: position, text and name of each fact.
_NOW = sorted((*row.glance, row.name) for row in QUANTITIES.values() if row.glance)


def render_machine(machine: Machine, findings: Iterable[Finding], console: Console) -> None:
    """Print every GPU, the findings, the software with its sources, and the variables that are set."""
    if machine.value("os.id") == "windows":
        console.print(
            styled(
                ("GPUs are not detected on Windows: only torch and the variables are shown.", "bold yellow")
            )
        )
    elif not machine.amd_gpus:
        console.print(styled(("No AMD GPU was found.", "bold yellow"), (f" To find it, {NOT_FOUND}.", "")))
    for alike in _alike(machine.gpus):
        _print_gpus(alike, console)
    print_findings(findings, console)
    asked = {name: machine.facts[name] for name in _SOFTWARE if name in machine.facts}
    known = {name: fact for name, fact in asked.items() if fact.value not in (None, [], {}, "none")}
    _print_facts("Software", known, console)
    rocm_torch = machine.value("torch.kind") in ("rocm", None)
    unknown = [
        name
        for name, fact in asked.items()
        if fact.value is None and (rocm_torch or name not in ("torch.hip", "torch.targets"))
    ]
    if unknown:
        console.print(styled((f"Unknown: {', '.join(unknown)}", "dim")))
    broken = {name: fact for name, fact in machine.facts.items() if name.startswith("errors.")}
    _print_facts("Readers that failed", broken, console)
    _print_variables(machine, console)
    console.print(styled((f"\nAll {len(machine.facts)} facts: rocmprobe detect --json", "dim")))


def _alike(gpus: Iterable[Gpu]) -> list[list[Gpu]]:
    """Return the GPUs in groups of the same model and size."""
    groups: dict[tuple[str, ...], list[Gpu]] = {}
    for gpu in gpus:
        facts = (
            gpu.name,
            gpu.native_isa,
            gpu.effective_isa,
            gpu.pci_id,
            gpu.revision,
            gpu.cus,
            gpu.partition,
        )
        groups.setdefault(tuple(str(fact.value) for fact in facts), []).append(gpu)
    return list(groups.values())


def _print_gpus(alike: list[Gpu], console: Console) -> None:
    gpu, several = alike[0], f"{len(alike)} x " if len(alike) > 1 else ""
    native, effective = gpu.native_isa.value, gpu.effective_isa.value
    name = f"{several}{gpu_name(gpu)}"
    heading = styled((name, "bold"), ("  ", ""), (text.show(native), "green"))
    if poses(native, effective):
        heading.append(" -> ", "dim")
        heading.append(text.plain(text.show(effective)), "bold yellow")
    console.print(heading)
    numbers = [] if several else _number(gpu)
    for part in (_silicon(gpu), _bus(gpu), numbers, *map(_now, alike)):
        if part:
            console.print(styled((f"  {', '.join(part)}", "")))
    if several:
        console.print(styled((f"  at {', '.join(map(_place, alike))}", "")))
    for label, fact in (("native ISA", gpu.native_isa), ("effective ISA", gpu.effective_isa)):
        console.print(styled((f"  {label}: {fact.source or 'source unknown'}", "dim")))


def _silicon(gpu: Gpu) -> list[str]:
    pci = f"PCI {text.show(gpu.pci_id.value)} revision {text.show(gpu.revision.value)}"
    vram = f"VRAM {text.bytes_(text.numeric(gpu.vram_bytes.value))}"
    used = text.numeric(gpu.vram_used_bytes.value)
    return [
        pci,
        f"{text.show(gpu.cus.value)} CUs",
        *([f"wave {text.show(gpu.wave_size.value)}"] if gpu.wave_size.value else []),
        vram + (f" ({text.bytes_(used)} in use)" if used is not None else ""),
        *(["in a processor"] if gpu.apu.value else []),
        *([f"partition {text.show(gpu.partition.value)}"] if gpu.partition.value else []),
    ]


def _place(gpu: Gpu) -> str:
    if gpu.index.value is not None:
        return f"{text.show(gpu.address.value)} (cuda:{text.show(gpu.index.value)})"
    return text.show(gpu.address.value) + (" (hidden)" if gpu.order.value is not None else "")


def _number(gpu: Gpu) -> list[str]:
    if gpu.index.value is not None:
        number = [f"cuda:{text.show(gpu.index.value)} ({text.show(gpu.index.source)})"]
    else:
        number = [text.show(gpu.index.source)] if gpu.order.value is not None else []
    uuid = gpu.uuid.value or ("none" if gpu.order.value is not None else None)
    return [*number, *([f"UUID {text.show(uuid)}"] if uuid else [])]


def _bus(gpu: Gpu) -> list[str]:
    atomics = {True: "PCIe atomics", False: "no PCIe atomics"}.get(gpu.pcie_atomics.value)
    facts = (gpu.address.value, gpu.pcie_link.value, atomics)
    return [text.show(fact) for fact in facts if fact is not None]


def _now(gpu: Gpu) -> list[str]:
    fields = ((getattr(gpu, name).value, words) for _, words, name in _NOW)
    return [words.format(text.show(value)) for value, words in fields if value is not None]


def _print_facts(title: str, facts: Mapping[str, Fact], console: Console) -> None:
    rows = (
        (_cell(name), _cell(_short(name, fact.value)), _cell(fact.source, "dim"))
        for name, fact in facts.items()
    )
    _print_table(title, rows, console)


def _short(name: str, value: Any) -> str:
    if name.endswith(".bytes"):
        return text.bytes_(text.numeric(value))
    if name == "dmesg.events":
        return ", ".join(f"{event['kind']} ({event['count']})" for event in value)
    if isinstance(value, Mapping) and "path" in value:
        return str(value["path"])
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return text.show(value)


def _print_variables(machine: Machine, console: Console) -> None:
    def rows() -> Iterator[tuple[Text, ...]]:
        for name, fact in machine.variables.items():
            label = machine.facts.get(f"variables.{name}", Fact("", fact.source))
            fine = str(label.value).startswith((EFFECTIVE, DEFAULT))
            words = _cell(label.value, "" if fine else "yellow")
            yield _cell(name), _cell(text.show(fact.value)), words, _cell(label.source, "dim")

    _print_table("Variables that are set", rows(), console)


def _print_table(title: str, rows: Iterable[tuple[Text, ...]], console: Console) -> None:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    if table.row_count:
        console.print(styled((f"\n{title}", "bold")))
        console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _cell(value: Any, style: str = "") -> Text:
    return Text(text.one_line(str(value), 200), style, overflow="fold")
