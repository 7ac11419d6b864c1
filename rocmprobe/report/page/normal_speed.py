"""The card's speed compared with other cards, the fastest dtype, and throughput by batch size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from markupsafe import Markup

from rocmprobe.judge.normal_speed import SLOW, NormalSpeed, gpu_of, normal_speeds
from rocmprobe.judge.recommendation.dtype_speed import BASE, DtypeSpeed, dtype_speeds, fastest, sentences
from rocmprobe.knowledge.reference_speeds import Published, peak_of, published
from rocmprobe.model.results import Outcome, Results
from rocmprobe.report import text
from rocmprobe.report.page.layout import Table, with_device
from rocmprobe.report.page.plots import Line, curves
from rocmprobe.report.text import number

_SERIES = ("first", "second", "third")
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_PASSES = {"fwd": "fwd", "fwd_bwd": "fwd + bwd"}
_VERDICTS = {"normal": "normal", "slow": "slow", "": "no figure to compare with"}
_ENDED = {
    "memory": "the next one did not fit", "time": "the time was up", "batch": "no larger one is tried",
}  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """Speeds of one device.

    ``table`` is None if the peak rates are unknown.
    """

    device: str
    peak: str
    table: Optional[Table]
    slow: str
    reasons: tuple[tuple[str, str], ...]
    figures: Table


@dataclass(frozen=True)
class NormalSpeedSection:
    """Content of the section about speed."""

    caption: str
    judged: tuple[Judged, ...]
    dtype_sentence: str
    dtypes: Optional[Table]
    plots: tuple[tuple[str, Markup], ...]
    batches: tuple[str, ...]


def normal_speed(results: Results) -> Optional[NormalSpeedSection]:
    """Return the section, or None if there are no speeds, no batch sizes and fewer than two dtypes."""
    speeds = normal_speeds(results)
    found = dtype_speeds(results, results.recommendation.per if results.recommendation else {})
    swept = [each for each in results.outcomes if each.check == "batch-sizes" and _points(each)]
    if not speeds and not swept and len(found) < 2:
        return None
    devices = tuple(dict.fromkeys(each.device for each in speeds))
    return NormalSpeedSection(
        _caption(results), tuple(_judged(results, device, speeds) for device in devices),
        sentences(results, found).strip(), _dtypes(found) if len(found) > 1 else None,
        tuple(_drawn(results, swept)), tuple(map(_ending, swept)),
    )  # fmt: skip


def _caption(results: Results) -> str:
    if not results.simulated:
        return ""
    return "Simulated: the speeds are those of the CPU that computes in place of the GPU."


def _judged(results: Results, device: str, speeds: Sequence[NormalSpeed]) -> Judged:
    own = [each for each in speeds if each.device == device]
    gpu = gpu_of(results, device)
    assert gpu is not None, "judged before"
    peak = peak_of(gpu)
    name = str(gpu.name.value or device)
    words = f"No peak is known for {name}: there is no figure to compare its speed with."
    if peak.flops:
        parts = [f"{_rate(rate, False)} in {dtype}" for dtype, rate in peak.flops.items()]
        words = f"Peak of {name}, calculated from its units and clocks: {', '.join(parts)}"
        words += f"; memory {_rate(peak.bytes, True)}." if peak.bytes else "."
        words += f" From {'; '.join(peak.sources)}."
    header = ("what", "pass", "verdict", "reached", "of the peak", "others reached")
    gfx = {figure.gfx for each in own for figure in each.others}
    figures = [each for each in published() if each.gfx in gfx]
    title = f"{name} ({device}), convolution under {_settings(own)}"
    table = Table(header, tuple(map(_row, own))) if peak.flops else None
    slow = [each for each in own if each.verdict == "slow"]
    return Judged(title, words, table, _slow_words(slow), _reasons(slow), _figures(figures))


def _settings(own: Sequence[NormalSpeed]) -> str:
    names = dict.fromkeys(each.setting for each in own if each.setting)
    return " and ".join(f"“{name}”" for name in names) or "no setting"


def _row(each: NormalSpeed) -> tuple[str, ...]:
    share = "unknown"
    if each.share is not None and each.peak is not None:
        limit = ", limited by memory" if each.memory_bound else ""
        share = f"{_percent(each.share)} of {_rate(each.peak, each.kind == 'copy')}{limit}"
    name = each.name if each.direction else f"{each.name}, {each.dtype}"
    verdict = _VERDICTS[each.verdict]
    rate = _rate(each.rate, each.kind == "copy")
    return name, _PASSES.get(each.direction, ""), verdict, rate, share, _others(each.others)


def _others(figures: Sequence[Published]) -> str:
    if not figures:
        return ""
    least, most = (pick(each.share for each in figures) for pick in (min, max))
    span = _percent(least) if _percent(least) == _percent(most) else f"{100 * least:.0f} to {_percent(most)}"
    names = dict.fromkeys(each.product.removeprefix("AMD Radeon ") for each in figures)
    networks = dict.fromkeys(each.network for each in figures if each.network)
    return f"{span} ({', '.join(names)}{': ' + ', '.join(networks) if networks else ''})"


def _slow_words(slow: Sequence[NormalSpeed]) -> str:
    if not slow:
        return ""
    start = "One speed is slow." if len(slow) == 1 else f"{len(slow)} speeds are slow."
    if not any(each.explanations for each in slow):
        return f"{start} This run saw none of the usual causes."
    return f"{start} This run saw these usual causes:"


def _reasons(slow: Sequence[NormalSpeed]) -> tuple[tuple[str, str], ...]:
    """Return (explanation, source) for each explanation of a slow speed."""
    found = []
    for reason in dict.fromkeys(reason for each in slow for reason in each.explanations):
        names = dict.fromkeys(each.name for each in slow if reason in each.explanations)
        concerns_all = len(names) == len({each.name for each in slow})
        found.append(
            (reason.text if concerns_all else f"{reason.text} For {', '.join(names)}.", reason.source)
        )
    return tuple(found)


def _figures(figures: Sequence[Published]) -> Table:
    header = ("product", "what", "dtype", "figure", "of its peak", "software", "date", "conditions", "source")
    rows = tuple(
        (
            each.product.removeprefix("AMD Radeon "), _subject(each), each.dtype,
            f"{each.ms:g} ms" if each.ms else _rate(each.rate, each.of == "copy"), _percent(each.share),
            each.software, each.date, each.conditions, each.source,
        )
        for each in figures
    )  # fmt: skip
    return Table(header, rows)


def _subject(each: Published) -> str:
    if not each.network:
        return {"gemm": "matrix product"}.get(each.of, each.of)
    return f"{each.network}, batch {each.batch}, {'training' if each.direction == 'fwd_bwd' else 'inference'}"


def _dtypes(found: Sequence[DtypeSpeed]) -> Table:
    networks = list(found[0].per_second)
    best = fastest(tuple(found))
    rows = []
    for each in found:
        rates = (_amount(each.per_second[name]) if name in each.per_second else "" for name in networks)
        time = "1" if each.dtype == BASE else number(each.time)
        verdict = " · ".join(filter(None, [each.verdict, "fastest correct" if each is best else ""]))
        rows.append((each.dtype, each.setting, *rates, time, verdict))
    return Table(("dtype", "setting", *networks, f"time over {BASE}", ""), tuple(rows))


def _points(outcome: Outcome) -> list[tuple[float, Optional[float]]]:
    batches, rates = (outcome.numerics.get(key) for key in ("batches", "samples_per_second"))
    if not isinstance(batches, (list, tuple)) or not isinstance(rates, (list, tuple)):
        return []
    found: list[tuple[float, Optional[float]]] = []
    for batch, rate in zip(batches, rates):
        at, value = text.numeric(batch), text.numeric(rate)
        if at is not None and value is not None and 1 <= at < 1e9 and 0 < value < 1e12:
            found.append((at, value))
    return found if len(found) > 1 else []


def _drawn(results: Results, swept: Sequence[Outcome]) -> list[tuple[str, Markup]]:
    devices = dict.fromkeys(each.device for each in swept)
    found = []
    for place, device in enumerate(devices):
        own = [each for each in swept if each.device == device]
        chosen = [_chosen(results, own, dtype) for dtype in dict.fromkeys(each.dtype for each in own)]
        title = with_device("Training throughput, images/s by batch size", device, devices)
        lines = [
            Line(f"{each.dtype}, {text.one_line(each.setting, 20)}", name, _points(each))
            for each, name in zip(chosen, _SERIES)
        ]
        found.append((title, curves(lines, title, "images/s", f"batches-{place}")))
    return found


def _chosen(results: Results, swept: Sequence[Outcome], dtype: str) -> Outcome:
    per = results.recommendation.per if results.recommendation else {}
    setting = per.get(f"{dtype}/training", {}).get("setting")
    own = [each for each in swept if each.dtype == dtype]
    return next((each for each in own if each.setting == setting), own[0])


def _ending(outcome: Outcome) -> str:
    points = _points(outcome)
    batch, rate = max(points, key=lambda point: point[1] or 0.0)
    ended: Any = outcome.memory.get("ended_by")
    words = _ENDED[ended] if isinstance(ended, str) and ended in _ENDED else "it is not known why"
    return (
        f"{outcome.dtype}, {outcome.setting}: at most {_amount(rate or 0.0)} images/s, with a batch of "
        f"{batch:.0f}. The largest batch was {points[-1][0]:.0f}: {words}."
    )


def _amount(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else number(value)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def _rate(value: float, of_bytes: bool) -> str:
    size, prefix = next(((size, prefix) for size, prefix in _UNITS if value >= size), (1.0, ""))
    if of_bytes and prefix == "T":
        size, prefix = 1e9, "G"
    amount = value / size
    return f"{amount:.0f} {prefix}B/s" if of_bytes else f"{number(amount)} {prefix}FLOP/s"


RULE = (
    f"A speed is slow if its share of the peak is below {SLOW:g} times the lowest share that others reached. "
    "Layers are compared with networks of the same kind. For depthwise, strided and transposed layers there "
    "is no figure to compare with."
)
