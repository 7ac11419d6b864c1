"""Peak speeds of cards, speeds measured by users, and usual reasons for a slow card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Optional

from rocmprobe.knowledge import gpus
from rocmprobe.model.results import Fact, Gpu
from rocmprobe.model.roofline import DIRECTIONS_IN
from rocmprobe.text.tables import table

_MHZ = 1e6
#: Larger clocks, unit counts and bus widths are invalid. Facts can come from an untrusted file.
_LARGEST = 1e6


@dataclass(frozen=True)
class Peak:
    """Peak speeds of a card: operations per second by dtype, and bytes per second."""

    flops: Mapping[str, float] = field(default_factory=dict)
    bytes: Optional[float] = None
    sources: tuple[str, ...] = ()
    clock_mhz: Optional[float] = None

    def of(self, kind: str, dtype: str) -> Optional[float]:
        """Return the peak speed for ``gemm``, ``copy`` or ``convolution``, or None if unknown."""
        return self.bytes if kind == "copy" else self.flops.get(dtype)


@dataclass(frozen=True)
class Published:
    """A published speed.

    - ``rate``: operations or bytes per second
    - ``share``: ``rate`` divided by the product's peak
    - ``like``: kinds of convolution with comparable speeds, e.g. "3x3"
    - ``ms``: time of a whole network, or None if no network was measured
    """

    product: str
    gfx: str
    of: str
    dtype: str
    direction: str
    rate: float
    share: float
    like: tuple[str, ...]
    network: str
    batch: int
    ms: Optional[float]
    software: str
    date: str
    conditions: str
    source: str


@dataclass(frozen=True)
class SlowReason:
    """A usual reason for a slow card."""

    name: str
    of: tuple[str, ...]
    text: str
    source: str
    gfx: tuple[str, ...] = ()

    def concerns(self, kind: str, gfx: str) -> bool:
        return kind in self.of and (not self.gfx or gfx in self.gfx)


def peak_of(gpu: Gpu) -> Peak:
    """Return the peak of ``gpu``, computed from its compute units and clocks.

    Facts that the driver does not report come from the table of products. For an unknown chip, the peak is
    empty.
    """
    gfx = gpu.native_isa.value
    chip = _chips().get(str(gfx).partition(":")[0])
    if chip is None:
        return Peak()
    row = _products().get(str(gpu.name.value), {})
    cus, clock = (
        _known(fact, row.get(column), row)
        for fact, column in ((gpu.cus, "cus"), (gpu.max_core_clock_mhz, "clock_mhz"))
    )
    flops = _flops(chip, cus.value, clock.value) if cus.value and clock.value else {}
    moved, memory_sources = _memory(gpu, chip, row)
    sources = ((cus.source, clock.source) if flops else ()) + memory_sources
    return Peak(flops, moved, tuple(dict.fromkeys(sources)), clock.value)


@lru_cache(maxsize=1)
def published() -> tuple[Published, ...]:
    """Return every published speed."""
    networks = {row["name"]: row for row in table("reference_speeds")["network"]}
    return tuple(_published(row, networks) for row in table("reference_speeds")["speed"])


@lru_cache(maxsize=1)
def explanations() -> tuple[SlowReason, ...]:
    """Return every usual reason for a slow card."""
    return tuple(
        SlowReason(row["name"], tuple(row["of"]), row["text"], row["source"], tuple(row.get("gfx", ())))
        for row in table("reference_speeds")["explanation"]
    )


def published_for(gfx: str, kind: str, dtype: str, direction: str = "") -> tuple[Published, ...]:
    """Return the published speeds of this kind, dtype and direction for chips in the family of ``gfx``."""
    family = gpus.family(gfx)
    return tuple(
        each
        for each in published()
        if (each.of, each.dtype, each.direction) == (kind, dtype, direction)
        and family is not None
        and gpus.family(each.gfx) == family
    )


@lru_cache(maxsize=1)
def _chips() -> dict[str, dict[str, Any]]:
    return {gfx: row for row in table("reference_speeds")["chip"] for gfx in row["gfx"]}


@lru_cache(maxsize=1)
def _products() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in table("reference_speeds")["product"]}


def _flops(chip: Mapping[str, Any], cus: float, clock_mhz: float) -> dict[str, float]:
    rate = cus * chip["per_clock"] * clock_mhz * _MHZ
    return {"float32": rate, **{dtype: factor * rate for dtype, factor in chip["half"].items()}}


def _memory(
    gpu: Gpu, chip: Mapping[str, Any], row: Mapping[str, Any]
) -> tuple[Optional[float], tuple[str, ...]]:
    bits, clock = _number(gpu.memory_bus_bits.value), _number(gpu.max_memory_clock_mhz.value)
    if bits and clock:
        sources = (gpu.memory_bus_bits.source, gpu.max_memory_clock_mhz.source)
        return bits / 8 * clock * _MHZ * chip["transfers"], sources
    return (_bus(row), (row["source"],)) if row else (None, ())


def _bus(product: Mapping[str, Any]) -> float:
    moved: float = product["bus_bits"] / 8 * product["gbps"] * 1e9
    return moved


def _known(fact: Fact, by_table: Any, row: Mapping[str, Any]) -> Fact:
    """Return ``fact`` if it has a valid number, else ``by_table`` as a fact with the source of ``row``."""
    value = _number(fact.value)
    return Fact(value, fact.source) if value else Fact(by_table, str(row.get("source", "")))


def _number(value: Any) -> Optional[float]:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _LARGEST
    return float(value) if known else None


def _published(row: Mapping[str, Any], networks: Mapping[str, Mapping[str, Any]]) -> Published:
    product, network = _products()[row["product"]], networks.get(row.get("network", ""), {})
    direction = row.get("direction", "")
    if network:
        operations = 2e9 * network["gmacs"] * row["batch"] * DIRECTIONS_IN[direction]
        rate = operations / row["ms"] * 1e3
    else:
        rate = 1e9 * (row["gbytes_per_s"] if row["of"] == "copy" else row["gflops"])
    flops = _flops(_chips()[product["gfx"]], product["cus"], product["clock_mhz"])
    most = Peak(flops, _bus(product)).of(row["of"], row["dtype"])
    assert most is not None, f"{row['product']} has no peak in {row['dtype']}"
    return Published(
        row["product"], product["gfx"], row["of"], row["dtype"], direction, rate, rate / most,
        tuple(network.get("like", ())), row.get("network", ""), row.get("batch", 0), row.get("ms"),
        row["software"], row["date"], row["conditions"], row["source"],
    )  # fmt: skip
