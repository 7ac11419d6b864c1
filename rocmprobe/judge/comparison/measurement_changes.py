"""Which times and amounts of memory of two runs differ by more than noise explains.

Two things make times of two runs differ though nothing changed: they scatter, and the device ran at another
speed. The first is measured by how the ratios of several problems scatter about their mean (where only few
were timed, by the deciles of each time), the second by the yardsticks, a matrix product and a copy, that were
timed in the same rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean, median
from typing import Optional

from rocmprobe.judge.noise import SAME_TIME, Ratio, Seconds, drift, ratio, seconds, time_of
from rocmprobe.judge.recommendation.ranking import WORTH_A_CHANGE
from rocmprobe.knowledge.expectations import observed
from rocmprobe.model.results import Outcome
from rocmprobe.model.roofline import roof

MORE, LESS, OPEN = "more", "less", "too noisy"
#: In the place of one direction, all that was timed under a setting.
ALL = "all"
#: Device, driver, setting, kind, what was measured.
_Place = tuple[str, str, str, str, str]

#: How often all groups of a comparison together may be called changed by chance, as far as scatter goes.
_CHANCE = 0.01
#: With fewer, how the ratios scatter is not known.
_LEAST_DEGREES = 3
#: Where the device's own speed changed by more, something else used it, or its clocks were others: then any
#: time may be off by a factor, and none is called changed. Nor where there is no yardstick.
QUIET = 1.25
#: By what factor something has to change at least. Runs of one CPU that also did other things differed by up
#: to 2.9 in what first calls took, which those of new sizes are, too; the memory of the bypass, which
#: measures its algorithms, by up to 1.2.
_WORTH = {"time": SAME_TIME, "first call": 3.0, "new size": 3.0, "memory": 1.25}
_TIMES = ("fwd", "bwd_data", "bwd_weights", "fwd_bwd", "step")
_NEW_SIZE = "new_size"
_FIRST_CALLS = ("cold_first_call", "warm_first_call")
_MEMORY = ("peak_bytes", "saved_bytes")
#: No call takes less. Results may come from elsewhere, and ratios of anything leave what floats can hold.
_SHORTEST = 1e-9
#: No device has as many bytes.
_MOST = 2**60


@dataclass(frozen=True)
class Measured:
    """How what was measured under one setting differs between two runs.

    ``kind`` is "time", "first call", "new size" or "memory", ``what`` the key in ``timings`` or ``memory`` of
    the outcomes, or "all" of a setting's times together. ``ratio`` is new over old, the geometric mean over
    ``problems`` of them, and noise leaves it between ``least`` and ``most``. ``told``: "more",
    "less", or "too noisy" where it is off by more than counts as equal while noise could explain it. ``id``
    is that of the outcome where a single problem is far off and the rest of its setting is not, else empty.
    """

    device: str
    driver: str
    setting: str
    kind: str
    what: str
    problems: int
    ratio: float
    least: float
    most: float
    told: str
    id: str = ""


@dataclass(frozen=True)
class Measurements:
    """``times`` and ``amounts``: how many were held against each other; ``drift``: by what factor, 1 or more,
    the speed of each device may have changed; a device of which that is not known is not in it."""

    times: int = 0
    amounts: int = 0
    drift: Mapping[str, float] = field(default_factory=dict)
    changed: tuple[Measured, ...] = ()

    def changed_as(self, word: str) -> tuple[Measured, ...]:
        return tuple(each for each in self.changed if each.told == word)


@dataclass(frozen=True)
class _Pair:
    """One time of both runs."""

    old: Outcome
    kind: str
    what: str
    before: Seconds
    after: Seconds

    @property
    def group(self) -> _Place:
        return self.old.device, self.old.driver, self.old.setting, self.kind, self.what

    @property
    def log(self) -> float:
        return math.log(self.after.median / self.before.median)


def measured(
    old: Iterable[Outcome], new: Iterable[Outcome], elsewhere: Mapping[str, str] = {}
) -> Measurements:
    """What changed of all that was measured in both runs, by setting first.

    The caller sees to it that both are of the same devices. ``elsewhere``: the settings that run on another
    device than the one they are requested for (``Setting.device``). Only what works in both runs counts.
    """
    later = {outcome.id: outcome for outcome in new}
    both = [(each, later[each.id]) for each in old if each.id in later]
    both = [pair for pair in both if all(observed(each).works for each in pair)]
    places: dict[str, list[tuple[Outcome, Outcome]]] = {}
    for each in both:
        places.setdefault(elsewhere.get(each[0].setting, each[0].device), []).append(each)
    drifts = {place: factor for place, mine in places.items() if (factor := _drift(mine)) is not None}
    changed: list[Measured] = []
    times = 0
    for place, mine in places.items():
        pairs = [pair for each in mine for pair in _pairs(*each)]
        times += len(pairs)
        found = [*_by_setting(pairs, drifts.get(place)), *_amounts(mine)]
        changed += [*found, *_far_off(pairs, drifts.get(place), found)]
    amounts = sum(1 for each in both for _ in _bytes_of(*each))
    return Measurements(times, amounts, drifts, tuple(changed))


def _pairs(old: Outcome, new: Outcome) -> Iterator[_Pair]:
    for what in _TIMES:
        before, after = (seconds(each.timings, what) for each in (old, new))
        if before and after and min(before.p10, after.p10) >= _SHORTEST:
            yield _Pair(old, "time", what, before, after)
    for what in _FIRST_CALLS:
        before, after = (_of_starts(each, what) for each in (old, new))
        if before and after and min(before.p10, after.p10) >= _SHORTEST:
            yield _Pair(old, "first call", what, before, after)
    sizes = [_of_new_sizes(each) for each in (old, new)]
    if sizes[0] and sizes[1] and min(each.p10 for each in sizes if each) >= _SHORTEST:
        yield _Pair(old, "new size", _NEW_SIZE, sizes[0], sizes[1])


def _of_starts(outcome: Outcome, what: str) -> Optional[Seconds]:
    """A first call over several processes: of so few, the least and the most are the spread."""
    value, least, most = (time_of(outcome.timings.get(f"{what}{end}")) for end in ("", "_min", "_max"))
    if value is None or least is None or most is None or not least <= value <= most:
        return None
    return Seconds(value, least, most)


def _of_new_sizes(outcome: Outcome) -> Optional[Seconds]:
    """What a new size cost, over the sizes of one run: each is asked once."""
    timings = outcome.timings
    return seconds({**timings, _NEW_SIZE: timings.get(f"{_NEW_SIZE}_median")}, _NEW_SIZE)


def _drift(both: Iterable[tuple[Outcome, Outcome]]) -> Optional[float]:
    """By what the device's speed may have changed between two measurements: the geometric mean over the
    problems of a setting, which share a process, and of those the largest, since what disturbed one process
    may have disturbed another unseen. None where the yardsticks were not timed in both runs."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for old, new in both:
        factor = drift(old.timings, new.timings)
        if roof(old.timings) and roof(new.timings) and math.isfinite(factor):
            found.setdefault((old.device, old.driver, old.setting), []).append(math.log(factor))
    return math.exp(max(map(fmean, found.values()))) if found else None


def quiet(drifted: Optional[float]) -> bool:
    """Whether the device is known to have run at the same speed, as far as that matters here."""
    return drifted is not None and drifted <= QUIET


def _by_setting(pairs: Sequence[_Pair], drifted: Optional[float]) -> Iterator[Measured]:
    doubt = drifted or 1.0
    for kind in ("time", "first call", "new size"):
        mine = [pair for pair in pairs if pair.kind == kind]
        groups = _grouped(mine, lambda pair: pair.group)
        scatter, degrees = _scatter([[pair.log for pair in group] for group in groups.values()])
        if degrees >= _LEAST_DEGREES:
            # What a slow-down of a setting adds to every direction shows best in all of them together.
            groups = {**_grouped(mine, lambda pair: (*pair.group[:4], ALL)), **groups}
        sure = 1 - _CHANCE / 2 / max(len(groups), 1)
        for place, group in groups.items():
            if degrees >= _LEAST_DEGREES:
                margin = _student(sure, degrees) * math.sqrt(scatter / len(group))
                whole = _within(group, margin, doubt)
            else:
                whole = _by_deciles(group, doubt)
            change = _classify(whole, _WORTH[kind], quiet(drifted))
            if change:
                problems = len({pair.old.id for pair in group})
                yield Measured(*place, problems, whole.value, whole.least, whole.most, change)


def _grouped(pairs: Iterable[_Pair], place: Callable[[_Pair], _Place]) -> dict[_Place, list[_Pair]]:
    groups: dict[_Place, list[_Pair]] = {}
    for pair in pairs:
        groups.setdefault(place(pair), []).append(pair)
    return groups


def _by_deciles(group: Sequence[_Pair], doubt: float) -> Ratio:
    """The geometric mean of the ratios of a group, and of their ranges (``noise.ratio``)."""
    each = [ratio(pair.after, pair.before, doubt) for pair in group]
    ends = ([one.value for one in each], [one.least for one in each], [one.most for one in each])
    return Ratio(*(math.exp(fmean(map(math.log, values))) for values in ends))


def _within(group: Sequence[_Pair], margin: float, doubt: float) -> Ratio:
    """The same mean with a margin, in logarithms, and the doubt in the device's speed."""
    value, spread = math.exp(fmean(pair.log for pair in group)), math.exp(margin) * doubt
    return Ratio(value, value / spread, value * spread)


def _scatter(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """The variance about the mean within ``groups``, pooled, and its degrees of freedom."""
    degrees = sum(len(group) - 1 for group in groups)
    squares = sum((value - fmean(group)) ** 2 for group in groups for value in group)
    return squares / max(degrees, 1), degrees


def _student(chance: float, degrees: int) -> float:
    """The quantile of Student's t, since of few values the scatter itself is uncertain: Abramowitz and
    Stegun, Handbook of Mathematical Functions, 26.7.5."""
    z = NormalDist().inv_cdf(chance)
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )


def _classify(found: Ratio, worth: float, sure: bool = True) -> str:
    if 1 / worth <= found.value <= worth:
        return ""
    return {"longer": MORE, "shorter": LESS}.get(found.verdict, OPEN) if sure else OPEN


def _far_off(
    pairs: Sequence[_Pair], drifted: Optional[float], reported: Sequence[Measured]
) -> Iterator[Measured]:
    """Single problems that changed by far more than the others scatter, in settings that did not."""
    known = {(each.device, each.driver, each.setting) for each in reported if each.told != OPEN}
    times = [pair for pair in pairs if pair.kind == "time"]
    if len(times) <= _LEAST_DEGREES:
        return
    middle = median(pair.log for pair in times)
    # 1.4826 makes a standard deviation of the median deviation of normally distributed values.
    scatter = 1.4826 * median(abs(pair.log - middle) for pair in times)
    far = scatter * _student(1 - _CHANCE / 2 / len(times), len(times) - 1)
    for pair in times:
        found = ratio(pair.after, pair.before, drifted or 1.0)
        word = _classify(found, WORTH_A_CHANGE, quiet(drifted))
        beyond = max(found.least, 1 / found.most) > SAME_TIME and abs(pair.log - middle) > far
        if pair.group[:3] not in known and word in (MORE, LESS) and beyond:
            yield Measured(*pair.group, 1, found.value, found.least, found.most, word, pair.old.id)


def _amounts(both: Iterable[tuple[Outcome, Outcome]]) -> Iterator[Measured]:
    """Memory has no spread within a run, and few problems are tested: each counts for itself."""
    for old, new in both:
        for what, before, after in _bytes_of(old, new):
            value = after / before
            change = _classify(Ratio(value, value, value), _WORTH["memory"])
            if change:
                place = (old.device, old.driver, old.setting, "memory", what)
                yield Measured(*place, 1, value, value, value, change, old.id)


def _bytes_of(old: Outcome, new: Outcome) -> Iterator[tuple[str, float, float]]:
    for what in _MEMORY:
        before, after = (_amount(each.memory.get(what)) for each in (old, new))
        if before and after:
            yield what, before, after


def _amount(value: object) -> Optional[float]:
    """``value`` if it is an amount of memory; results may come from elsewhere, and hold anything."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 < value < _MOST else None
