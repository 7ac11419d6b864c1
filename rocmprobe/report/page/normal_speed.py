"""Whether the card is as fast as others, which dtype is the fastest, and throughput over batch sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from markupsafe import Markup

from rocmprobe.judge.normal_speed import SLOW, NormalSpeed, gpu_of, normal_speeds, speeds_are_real
from rocmprobe.judge.recommendation.dtype_speed import BASE, DtypeSpeed, dtype_speeds, fastest, sentences
from rocmprobe.knowledge.reference_speeds import Published, peak_of, published
from rocmprobe.model.results import Outcome, Results
from rocmprobe.report import text
from rocmprobe.report.page.layout import Table, with_device
from rocmprobe.report.page.plots import Line, curves
from rocmprobe.report.text import number

#: Classes of the style sheet for the lines of a plot.
_SERIES = ("first", "second", "third")
#: Rates by what they count.
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"))
_VERDICTS = {"normal": "normal", "slow": "slow", "": "no figure to compare with"}
_ENDED = {"memory": "the next one did not fit", "time": "ended by time", "batch": "the largest that is tried"}


@dataclass(frozen=True)
class Judged:
    """One device: the sentence about its peak, a table of speeds, and a sentence for each verdict of slow."""

    device: str
    peak: str
    table: Table
    slow: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    figures: Table


@dataclass(frozen=True)
class NormalSpeedSection:
    """``judged`` by device, the fastest dtype in a sentence with its ``dtypes``, and plots over batch
    sizes."""

    caption: str
    judged: tuple[Judged, ...]
    dtype_sentence: str
    dtypes: Optional[Table]
    plots: tuple[tuple[str, Markup], ...]
    batches: tuple[str, ...]


def normal_speed(results: Results) -> Optional[NormalSpeedSection]:
    """Return the section, or None if no GPU's speed was measured and no batch sizes were tried."""
    speeds = normal_speeds(results)
    found = dtype_speeds(results, results.recommendation.per if results.recommendation else {})
    swept = [each for each in results.outcomes if each.check == "batch-sizes" and _points(each)]
    if not speeds and not swept and len(found) < 2:
        return None
    devices = tuple(dict.fromkeys(each.device for each in speeds))
    drawn = _drawn(swept)
    return NormalSpeedSection(
        _caption(results), tuple(_judged(results, device, speeds) for device in devices),
        sentences(results, found).strip(), _dtypes(found) if len(found) > 1 else None,
        tuple(plot for plot, _ in drawn), tuple(line for _, lines in drawn for line in lines),
    )  # fmt: skip


def _caption(results: Results) -> str:
    if not results.simulated:
        return ""
    if speeds_are_real(results):
        return (
            "Simulated: every speed here comes from the file of the simulated machine. Nothing ran on a GPU."
        )
    return "Simulated: the speeds are those of the CPU that computes in place of the GPU."


def _judged(results: Results, device: str, speeds: Sequence[NormalSpeed]) -> Judged:
    own = [each for each in speeds if each.device == device]
    gpu = gpu_of(results, device)
    assert gpu is not None, "judged before"
    peak = peak_of(gpu)
    name = str(gpu.name.value or device)
    words = f"No peak is known for {name}."
    if peak.flops:
        parts = [f"{_rate(rate, False)} in {dtype}" for dtype, rate in peak.flops.items()]
        words = f"Peak of {name} by its units and clocks: {', '.join(parts)}"
        words += f"; memory {_rate(peak.bytes, True)}." if peak.bytes else "."
        words += f" From {'; '.join(peak.sources)}."
    header = ("what", "dtype", "setting", "reached", "of the peak", "others reached", "verdict")
    slow = tuple(
        (_slow_words(each), tuple((reason.text, reason.source) for reason in each.explanations))
        for each in own
        if each.verdict == "slow"
    )
    gfx = {figure.gfx for each in own for figure in each.others}
    figures = [each for each in published() if each.gfx in gfx]
    return Judged(
        f"{name} ({device})", words, Table(header, tuple(map(_row, own))), slow, _figures(figures)
    )  # fmt: skip


def _row(each: NormalSpeed) -> tuple[str, ...]:
    share = "unknown"
    if each.share is not None and each.peak is not None:
        limit = ", limited by memory" if each.memory_bound else ""
        share = f"{_percent(each.share)} of {_rate(each.peak, each.kind == 'copy')}{limit}"
    return (
        each.name, each.dtype, each.setting, _rate(each.rate, each.kind == "copy"), share,
        _others(each.others), _VERDICTS[each.verdict],
    )  # fmt: skip


def _others(figures: Sequence[Published]) -> str:
    if not figures:
        return ""
    least, most = (pick(each.share for each in figures) for pick in (min, max))
    span = _percent(least) if _percent(least) == _percent(most) else f"{100 * least:.0f} to {_percent(most)}"
    names = dict.fromkeys(each.product.removeprefix("AMD Radeon ") for each in figures)
    networks = dict.fromkeys(each.network for each in figures if each.network)
    return f"{span} ({', '.join(names)}{': ' + ', '.join(networks) if networks else ''})"


def _slow_words(each: NormalSpeed) -> str:
    least = min(figure.share for figure in each.others)
    words = (
        f"{each.name} in {each.dtype} is slow: {_percent(each.share or 0.0)} of the peak, where others "
        f"reached at least {_percent(least)}."
    )
    if not each.explanations:
        return f"{words} This run saw none of the usual causes."
    return f"{words} What usually explains it, and was seen here:"


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
        rates = (number(each.per_second[name]) if name in each.per_second else "" for name in networks)
        time = "1" if each.dtype == BASE else number(each.time)
        verdict = " · ".join(filter(None, [each.verdict, "fastest correct" if each is best else ""]))
        rows.append((each.dtype, each.setting, *rates, time, verdict))
    return Table(("dtype", "setting", *networks, f"time over {BASE}", ""), tuple(rows))


def _points(outcome: Outcome) -> list[tuple[float, Optional[float]]]:
    """Return batch sizes with samples a second, or nothing if there are fewer than two."""
    batches, rates = (outcome.numerics.get(key) for key in ("batches", "samples_per_second"))
    if not isinstance(batches, (list, tuple)) or not isinstance(rates, (list, tuple)):
        return []
    found: list[tuple[float, Optional[float]]] = []
    for batch, rate in zip(batches, rates):
        at, value = text.numeric(batch), text.numeric(rate)
        if at is not None and value is not None and 1 <= at < 1e9 and 0 < value < 1e12:
            found.append((at, value))
    return found if len(found) > 1 else []


def _drawn(swept: Sequence[Outcome]) -> list[tuple[tuple[str, Markup], list[str]]]:
    """Return a plot for each device and setting, a line for each dtype, with what each line came to."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in swept:
        groups[outcome.device, outcome.setting].append(outcome)
    devices = {device for device, _ in groups}
    found = []
    for place, ((device, setting), outcomes) in enumerate(groups.items()):
        title = (
            f"Training throughput, images/s by batch size, setting {with_device(setting, device, devices)}"
        )
        lines = [
            Line(outcome.dtype, _SERIES[index % len(_SERIES)], _points(outcome))
            for index, outcome in enumerate(outcomes[: len(_SERIES)])
        ]
        words = [_ending(outcome, with_device(setting, device, devices)) for outcome in outcomes]
        found.append(((title, curves(lines, title, "images/s", f"batches-{place}")), words))
    return found


def _ending(outcome: Outcome, setting: str) -> str:
    points = _points(outcome)
    fastest_batch, rate = max(points, key=lambda point: point[1] or 0.0)
    ended: Any = outcome.memory.get("ended_by")
    words = f"{_ENDED[ended]}" if isinstance(ended, str) and ended in _ENDED else "not known why it ended"
    return (
        f"{outcome.dtype}, {setting}: {number(rate or 0.0)} images/s at most, with a batch of "
        f"{fastest_batch:.0f}; largest batch {points[-1][0]:.0f} ({words})."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def _rate(value: float, of_bytes: bool) -> str:
    size, prefix = next(((size, prefix) for size, prefix in _UNITS if value >= size), (1.0, ""))
    if of_bytes and prefix == "T":
        size, prefix = 1e9, "G"
    amount = value / size
    return f"{amount:.0f} {prefix}B/s" if of_bytes else f"{number(amount)} {prefix}FLOP/s"


#: What the page says of the verdicts.
RULE = (
    f"Slow is what is below {SLOW:g} times the smallest share of their peak that others reached. Figures of "
    "whole networks stand for layers of their kind; depthwise, strided and transposed layers have none."
)
