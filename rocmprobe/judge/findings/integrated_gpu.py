"""Findings about machines with an integrated GPU and a graphics card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.compatibility import answer, of_machine
from rocmprobe.knowledge.visible_devices import CUDA, HIP, ROCR, in_processor, mask_for
from rocmprobe.model.results import Finding, Gpu, Machine

#: First character of the placeholder that stands for a UUID in redacted results.
_PLACEHOLDER = "<"
_CAUSE, _LAYER = "integrated-gpu-first", "user-env"


def integrated_beside_a_card(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if programs can see an integrated GPU although the machine has a card."""
    machine = run.machine
    listed = [gpu for gpu in machine.amd_gpus if gpu.order.value is not None]
    cards = [gpu for gpu in listed if not in_processor(gpu)]
    seen = [gpu for gpu in listed if in_processor(gpu) and gpu.index.value is not None]
    if not listed:
        yield from _without_numbers(machine)
    if not cards or not seen:
        return
    severity = "warning"
    if all(gpu.index.value is None for gpu in cards):
        title = f"Environment variables hide {named(cards)}: programs use the integrated GPU ({named(seen)})"
    elif _takes_the_first(machine):
        title = f"Programs that use the first GPU get the integrated one ({named(seen)})"
    else:
        severity = "info"
        title = f"Programs see the integrated GPU ({named(seen)}) as well as {named(cards)}"
    evidence = tuple(_line(gpu) for gpu in sorted(listed, key=lambda gpu: int(gpu.order.value)))
    advice = f"Run {_way(machine, cards)}: programs then see only {named(cards)}, not the integrated GPU."
    yield Finding("integrated-gpu", severity, _CAUSE, _LAYER, title, evidence, advice)


def _takes_the_first(machine: Machine) -> bool:
    first = answer(of_machine(machine, machine.amd_gpus[0]), "first-device-is-a-card")
    return first is not None and not first.holds


def hiding(machine: Machine, gpu: Gpu) -> str:
    """Return advice to hide ``gpu`` if it is an integrated GPU that programs see next to a card, else ""."""
    cards = [each for each in machine.amd_gpus if each.order.value is not None and not in_processor(each)]
    if not in_processor(gpu) or gpu.index.value is None or not cards:
        return ""
    return f"Run {_way(machine, cards)} to hide this integrated GPU and keep {named(cards)}."


def _without_numbers(machine: Machine) -> Iterator[Finding]:
    cards = [gpu for gpu in machine.amd_gpus if not in_processor(gpu)]
    if not cards or len(cards) == len(machine.amd_gpus) or machine.value("kfd.device") == "absent":
        return
    mask = mask_for(machine, cards)
    title = f"The machine has {named(cards)} and an integrated GPU, and their order is not known"
    evidence = tuple(_line(gpu) for gpu in machine.amd_gpus)
    advice = (
        f"`rocmprobe detect --no-redact` shows the card's UUID, which {ROCR} accepts."
        if mask and _PLACEHOLDER in mask
        else f"Run `export {mask}`: programs then see only the card."
        if mask
        else f"`rocminfo` lists the GPUs in the order of {HIP}, from 0. Set {HIP} to the card's number."
    )
    yield Finding("integrated-gpu", "info", _CAUSE, _LAYER, title, evidence, advice)


def _way(machine: Machine, cards: Iterable[Gpu]) -> str:
    mask = mask_for(machine, cards) or ""
    others = [name for name in (HIP, CUDA) if mask.startswith(ROCR) and name in machine.variables]
    return f"`{f'unset {chr(32).join(others)}; ' if others else ''}export {mask}`"


def _line(gpu: Gpu) -> str:
    number = "hidden" if gpu.index.value is None else f"cuda:{gpu.index.value}"
    if gpu.order.value is None:
        number = "number not known"
    where = "integrated" if in_processor(gpu) else "a card"
    return f"{number}: {named([gpu])}, {where}, PCI {gpu.address.value or 'address not known'}"


def named(gpus: Iterable[Gpu]) -> str:
    """Return the names of GPUs, separated by commas."""
    names = (str(gpu.name.value or gpu.native_isa.value or "an AMD GPU") for gpu in gpus)
    return ", ".join(dict.fromkeys(names))
