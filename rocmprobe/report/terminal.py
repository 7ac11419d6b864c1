"""The same answers for a terminal: a run's end, and a machine at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rocmprobe.model import Fact, Gpu, Machine, Results
from rocmprobe.report import text, view
from rocmprobe.report.states import LOOKS, SEVERITY_SYMBOLS, VERDICT_TONES, VERDICT_WORDS

_STYLES = {"good": "green", "slow": "yellow", "bad": "red", "fault": "magenta", "unlearned": "dim"}
_SEVERITY_STYLES = {"error": "red", "warning": "yellow", "info": "cyan"}
#: Software facts worth a glance, in this order; the others follow by name.
_FIRST = (
    "os.name", "kernel.release", "cpu.name", "rocm.version", "hip.version", "miopen.version", "torch.version",
)  # fmt: skip


def render_run(results: Results, paths: Mapping[str, Path], console: Console) -> None:
    """Verdict, configuration to copy, findings, counts by state, and where the files are."""
    for banner in view.banners(results):
        line = _line((f"{banner.title}: ", "bold magenta" if banner.kind == "simulated" else "bold yellow"))
        console.print(line.append(text.plain(banner.body)))
    recommendation = results.recommendation
    verdict = recommendation.verdict if recommendation else None
    word = VERDICT_WORDS[verdict] if verdict else "No recommendation"
    tone = VERDICT_TONES[verdict] if verdict else "fault"
    console.print()
    console.print(_line((f"Verdict: {word}. ", f"bold {_STYLES[tone]}"), (view.sentence(results), "bold")))
    if recommendation:
        for block in view.blocks(recommendation.configuration):
            console.print(_line((f"\n{block.label}:", "dim")))
            # Soft wrap: a wrapped line would not survive being copied.
            console.print(Text(_indented(block.body)), soft_wrap=True)
        for layer in recommendation.configuration.layers:
            console.print(_line((f"  {layer}", "")))
        console.print()
        if recommendation.cost:
            console.print(_line(("Cost: ", "dim"), (recommendation.cost, "")))
        if recommendation.confidence:
            console.print(_line(("Confidence: ", "dim"), (recommendation.confidence, "")))
        if recommendation.verify:
            console.print(_line(("Check it again: ", "dim"), (recommendation.verify, "")), soft_wrap=True)
    if results.findings:
        console.print(_line(("\nFindings", "bold")))
    for finding in results.findings:
        style = _SEVERITY_STYLES[finding.severity]
        symbol = f"{SEVERITY_SYMBOLS[finding.severity]} "
        blame = f"  {finding.layer}, {finding.cause}"
        console.print(_line((symbol, style), (finding.title, "bold"), (blame, "dim")))
        if finding.advice:
            console.print(Padding(Text(text.plain(finding.advice)), (0, 0, 0, 2), expand=False))
    _print_counts(results, console)
    for name, path in paths.items():
        console.print(_line((f"{name:>12}  ", "dim"), (str(path), "")), soft_wrap=True)


def _print_counts(results: Results, console: Console) -> None:
    counts = Counter(outcome.state for outcome in results.outcomes)
    line = _line((f"\n{text.count(len(results.outcomes), 'outcome')}: ", ""))
    for position, look in enumerate(look for look in LOOKS.values() if counts[look.state]):
        line.append(", " if position else "")
        line.append(f"{look.symbol} {counts[look.state]} {look.state}", _STYLES[look.tone])
    console.print(line)


def render_machine(machine: Machine, console: Console) -> None:
    """Every GPU, then the software with its sources, then the variables that are set."""
    if not any(gpu.vendor.value == "amd" for gpu in machine.gpus):
        console.print(_line(("No AMD GPU was found.", "bold yellow")))
    for gpu in machine.gpus:
        _print_gpu(gpu, console)
    names = [name for name in _FIRST if name in machine.facts]
    names += sorted(name for name in machine.facts if name not in _FIRST)
    known = {name: machine.facts[name] for name in names if machine.facts[name].value is not None}
    unknown = [name for name in names if machine.facts[name].value is None]
    _print_facts("Software", known, console)
    if unknown:
        console.print(_line((f"Not learned: {', '.join(unknown)}", "dim")))
    _print_facts("Variables that are set", machine.variables, console)


def _print_gpu(gpu: Gpu, console: Console) -> None:
    native, effective = gpu.native_isa.value, gpu.effective_isa.value
    posing = view.poses(native, effective)
    line = _line((view.show_gpu_name(gpu), "bold"), ("  ", ""), (text.show(native), "green"))
    if posing:
        line.append(" -> ", "dim")
        line.append(text.plain(text.show(effective)), "bold yellow")
    console.print(line)
    vram = text.bytes_(text.numeric(gpu.vram_bytes.value))
    pci = f"PCI {text.show(gpu.pci_id.value)} revision {text.show(gpu.revision.value)}"
    console.print(_line((f"  {pci}, {text.show(gpu.cus.value)} CUs, {vram} of VRAM", "")))
    for label, fact in (("native ISA", gpu.native_isa), ("effective ISA", gpu.effective_isa)):
        console.print(_line((f"  {label}: {fact.source or 'source unknown'}", "dim")))


def _print_facts(title: str, facts: Mapping[str, Fact], console: Console) -> None:
    if not facts:
        return
    console.print(_line((f"\n{title}", "bold")))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, fact in facts.items():
        table.add_row(_cell(name), _cell(text.show(fact.value)), _cell(fact.source, "dim"))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _cell(value: Any, style: str = "") -> Text:
    return Text(text.one_line(str(value), 200), style, overflow="fold")


def _line(*parts: tuple[str, str]) -> Text:
    """Text objects, never markup strings: what a log says must not be read as rich's markup."""
    line = Text()
    for part, style in parts:
        line.append(text.plain(part), style)
    return line


def _indented(body: str) -> str:
    return "\n".join(f"  {line}" for line in text.plain(body).splitlines())
