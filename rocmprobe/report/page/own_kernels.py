"""What a device reached in kernels of our own, and in matrix products beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from rocmprobe.model.results import Outcome, Results
from rocmprobe.report import text
from rocmprobe.report.page.layout import Table

_CAPTION = (
    "Its own kernels, compiled on this machine: what it takes to compile those of a dtype (nothing where "
    "the code was kept) and to launch one, and what they reach in multiply-adds and copies; beside them "
    "torch.mm, by rows, inner size and columns."
)


@dataclass(frozen=True)
class OwnKernels:
    caption: str
    table: Table


def own_kernels(results: Results) -> Optional[OwnKernels]:
    """A row for each quantity, a column for each device and dtype that was asked and answered."""
    asked = [each for each in results.outcomes if each.check == "kernel" and "compile" in each.timings]
    if not asked:
        return None
    several = len({each.device for each in asked}) > 1
    header = ("", *(f"{each.dtype} ({each.device})" if several else str(each.dtype) for each in asked))
    products = list(dict.fromkeys(name for each in asked for name in _products(each)))
    rows = [
        ("compile", *(_seconds(each.timings.get("compile")) for each in asked)),
        ("launch", *(_seconds(each.timings.get("launch")) for each in asked)),
        ("multiply-adds, TFLOPS", *(_rate(each.numerics.get("multiply_add_flops"), 1e12) for each in asked)),
        ("copy, GB/s", *(_rate(each.numerics.get("copied_bytes"), 1e9) for each in asked)),
    ]
    for name in products:
        rates = (_rate(_products(each).get(name), 1e12) for each in asked)
        rows.append((f"torch.mm {name.replace('x', ' x ')}, TFLOPS", *rates))
    return OwnKernels(_CAPTION, Table(header, tuple(row for row in rows if any(row[1:]))))


def _products(outcome: Outcome) -> dict[str, object]:
    found = outcome.numerics.get("product_flops")
    return found if isinstance(found, dict) else {}


def _seconds(amount: object) -> str:
    value = text.numeric(amount)
    return "" if value is None else text.seconds(value)


def _rate(amount: object, unit: float) -> str:
    value = text.numeric(amount)
    return "" if value is None else text.number(value / unit)
