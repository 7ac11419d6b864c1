"""Comparison of times and memory between two runs, without differences that are only noise.

Noise in times is estimated from the ratios (new / old time) of several problems. A change of the device's own
speed (e.g. other clocks) is measured with a matrix product and a copy.
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
from rocmprobe.model.roofline import measure_roof

MORE, LESS, OPEN = "more", "less", "too noisy"
#: Value of ``Measured.what`` for all times of a setting together.
ALL = "all"
#: Device, driver, setting, kind, and the key of the measurement.
_Place = tuple[str, str, str, str, str]

#: Maximum probability that random scatter makes at least one group of times look changed.
_CHANCE = 0.01
#: Smallest number of degrees of freedom to compute the scatter from the ratios. With fewer, use the
#: percentiles that were stored with each median time.
_LEAST_DEGREES = 3
#: If the device's own speed changed by more than this factor, another program used it or its clocks differed.
#: Then no time counts as changed. The same applies if the device's speed is unknown.
QUIET = 1.25
#: Smallest factor that counts as a change, keyed by kind. On one CPU that also did other work, first calls
#: and calls with new sizes differed between runs by a factor of up to 2.9. The memory of the bypass differed
#: by a factor of up to 1.2, because the bypass chooses its algorithms by measurement.
_WORTH = {"time": SAME_TIME, "first call": 3.0, "new size": 3.0, "memory": 1.25}
_TIMES = ("fwd", "bwd_data", "bwd_weights", "fwd_bwd", "step")
_NEW_SIZE = "new_size"
_FIRST_CALLS = ("cold_first_call", "warm_first_call")
_MEMORY = ("peak_bytes", "saved_bytes")
#: Shortest plausible time of a call in seconds. Results from other people can contain any number, and ratios
#: of shorter times can exceed the range of a float.
_SHORTEST = 1e-9
#: No device has this many bytes.
_MOST = 2**60


@dataclass(frozen=True)
class Measured:
    """The change of a measurement under one setting between two runs.

    ``kind`` is "time", "first call", "new size" or "memory". ``what`` is a key of ``Outcome.timings`` or
    ``Outcome.memory``, or "all" for all times of a setting. ``ratio`` is the geometric mean of new / old over
    ``problems`` problems. Because of noise, the true ratio can be anything from ``least`` to
    ``most``.

    ``told`` is "more", "less" or "too noisy". ``id`` is the outcome's id, or "" if the ratio is about a whole
    setting.
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
    """The changed measurements of two runs.

    ``times`` and ``amounts`` are the numbers of compared times and memory amounts. ``drift`` maps each device
    to the factor, 1 or more, by which the device's speed may have changed.
    """

    times: int = 0
    amounts: int = 0
    drift: Mapping[str, float] = field(default_factory=dict)
    changed: tuple[Measured, ...] = ()

    def changed_as(self, word: str) -> tuple[Measured, ...]:
        return tuple(each for each in self.changed if each.told == word)


@dataclass(frozen=True)
class _Pair:
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
    """Return the measurements that changed, from outcomes that work in both runs.

    Both runs must have used the same devices. ``elsewhere`` maps settings that prescribe a device, e.g. the
    CPU, to this device.
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
    """Return the median, smallest and largest time of the first call in several processes."""
    # There are too few processes for percentiles.
    value, least, most = (time_of(outcome.timings.get(f"{what}{end}")) for end in ("", "_min", "_max"))
    if value is None or least is None or most is None or not least <= value <= most:
        return None
    return Seconds(value, least, most)


def _of_new_sizes(outcome: Outcome) -> Optional[Seconds]:
    timings = outcome.timings
    return seconds({**timings, _NEW_SIZE: timings.get(f"{_NEW_SIZE}_median")}, _NEW_SIZE)


def _drift(both: Iterable[tuple[Outcome, Outcome]]) -> Optional[float]:
    """Return the factor by which the device's speed may have changed, or None if unknown.

    The factor is computed for each setting, and the largest one is returned.
    """
    found: dict[tuple[str, str, str], list[float]] = {}
    for old, new in both:
        factor = drift(old.timings, new.timings)
        if measure_roof(old.timings) and measure_roof(new.timings) and math.isfinite(factor):
            found.setdefault((old.device, old.driver, old.setting), []).append(math.log(factor))
    # Whatever changed the speed under one setting can also have changed the speed under other settings. So
    # assume the largest factor for all settings.
    return math.exp(max(map(fmean, found.values()))) if found else None


def quiet(drifted: Optional[float]) -> bool:
    """Return True if the device is known to have run at about the same speed in both runs."""
    return drifted is not None and drifted <= QUIET


def _by_setting(pairs: Sequence[_Pair], drifted: Optional[float]) -> Iterator[Measured]:
    doubt = drifted or 1.0
    for kind in ("time", "first call", "new size"):
        mine = [pair for pair in pairs if pair.kind == kind]
        groups = _grouped(mine, lambda pair: pair.group)
        scatter, degrees = _scatter([[pair.log for pair in group] for group in groups.values()])
        if degrees >= _LEAST_DEGREES:
            # A setting usually slows down in all directions, so a change is easiest to detect in all
            # directions together.
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
    each = [ratio(pair.after, pair.before, doubt) for pair in group]
    ends = ([one.value for one in each], [one.least for one in each], [one.most for one in each])
    return Ratio(*(math.exp(fmean(map(math.log, values))) for values in ends))


def _within(group: Sequence[_Pair], margin: float, doubt: float) -> Ratio:
    value, spread = math.exp(fmean(pair.log for pair in group)), math.exp(margin) * doubt
    return Ratio(value, value / spread, value * spread)


def _scatter(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return (variance within the groups, degrees of freedom), pooled over all groups."""
    degrees = sum(len(group) - 1 for group in groups)
    squares = sum((value - fmean(group)) ** 2 for group in groups for value in group)
    return squares / max(degrees, 1), degrees


def _student(chance: float, degrees: int) -> float:
    """Return the quantile ``chance`` of Student's t distribution.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
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
    """Yield single problems whose time changed far more than the times of other problems."""
    # Skip settings that changed as a whole, because ``reported`` already has them.
    known = {(each.device, each.driver, each.setting) for each in reported if each.told != OPEN}
    times = [pair for pair in pairs if pair.kind == "time"]
    if len(times) <= _LEAST_DEGREES:
        return
    middle = median(pair.log for pair in times)
    # The factor 1.4826 turns the median deviation of normally distributed values into a standard deviation.
    scatter = 1.4826 * median(abs(pair.log - middle) for pair in times)
    far = scatter * _student(1 - _CHANCE / 2 / len(times), len(times) - 1)
    for pair in times:
        found = ratio(pair.after, pair.before, drifted or 1.0)
        word = _classify(found, WORTH_A_CHANGE, quiet(drifted))
        beyond = max(found.least, 1 / found.most) > SAME_TIME and abs(pair.log - middle) > far
        if pair.group[:3] not in known and word in (MORE, LESS) and beyond:
            yield Measured(*pair.group, 1, found.value, found.least, found.most, word, pair.old.id)


def _amounts(both: Iterable[tuple[Outcome, Outcome]]) -> Iterator[Measured]:
    """Yield the amounts of memory that changed."""
    for old, new in both:
        for what, before, after in _bytes_of(old, new):
            value = after / before
            # Use no statistics, because memory use does not vary within a run and few problems are tested.
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
    """Return ``value`` as a float, or None if it cannot be a number of bytes."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 < value < _MOST else None
