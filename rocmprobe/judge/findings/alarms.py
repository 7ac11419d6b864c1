"""Rules about GPU sensors, for findings after a run and for alarms during a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.causes import advice_for
from rocmprobe.model.results import Finding
from rocmprobe.model.telemetry import (
    LASTING_SAMPLES,
    QUANTITIES,
    TEMPERATURES,
    DeviceTelemetry,
    Limit,
    is_sustained,
)

Reading = Mapping[str, float]

#: Ids of the findings. If there are several GPUs, a dash and the PCI address follow the id.
FINDINGS = (
    "fan-stopped", "thermal-throttling", "weak-fan", "temperature-limit", "memory-hot", "vram-taken",
    "vram-full", "power-cap",
)  # fmt: skip
#: A temperature is "at its limit" if it is at most this many degrees below the limit. Near the limit,
#: the firmware lowers the clock, so temperatures hardly ever exceed the limit.
AT_LIMIT = 5.0
#: The fan must turn if the temperature is at most this many degrees below the limit. Cards normally start
#: their fans much earlier, at an edge temperature of about 60 degrees.
_FAN_MUST_TURN = 15.0
#: If a card is at its temperature limit, a fan below this speed in per cent counts as too slow.
WEAK_FAN = 60.0
#: Load in per cent from which a GPU counts as busy.
_BUSY = 80.0
#: The clock counts as throttled if its median at the temperature limit is at most this fraction of its median
#: below the limit. Only busy samples count.
_SLOWED = 0.9
#: The power counts as "at the cap" if it is at least this fraction of the cap, because the regulator
#: oscillates about the cap.
_AT_CAP = 0.97
_VRAM_FULL, _VRAM_TAKEN = 0.95, 0.8
#: Names of temperature sensors of the chip. The rules use the first sensor that a card has.
_CHIP = ("temperature_junction_c", "temperature_edge_c")

_FAN_ADVICE = (
    "Set a steeper fan curve (with CoreCtrl, LACT, or pwm1_enable and pwm1 in hwmon), and improve the case's "
    "airflow. A lower power limit costs little speed: `sudo rocm-smi "
    "--setpoweroverdrive 120`, or power1_cap in hwmon, where the card allows it."
)
_WEAK = "The fan can run faster. Start with the finding about the fan."


def telemetry_findings(run: Evidence) -> Iterator[Finding]:
    """Yield findings about heat, fans, memory and power of each GPU whose sensors were read."""
    watched = [each for each in run.results.telemetry if each.device != "cpu"]
    for device in watched:
        suffix = f"-{device.device}" if len(watched) > 1 else ""
        yield from _of_device(device, suffix)


def _of_device(device: DeviceTelemetry, suffix: str) -> Iterator[Finding]:
    hottest = next((name for name in _CHIP if _known(device, name)), "")
    if hottest:
        yield from _heat(device, hottest, suffix)
    if _known(device, "temperature_memory_c"):
        yield from _memory_heat(device, suffix)
    if device.limit("vram_used_bytes"):
        yield from _vram(device, suffix)
    if device.limit("power_w"):
        yield from _power(device, suffix)


def _known(device: DeviceTelemetry, quantity: str) -> bool:
    return quantity in device.values and device.limit(quantity) is not None


def _lasting(device: DeviceTelemetry, holds: Callable[[Reading], bool]) -> bool:
    """Return True if ``holds`` is true for enough consecutive samples (see ``is_sustained``)."""
    stretch: list[float] = []
    last = -1
    for number, second, moment in zip(
        device.numbers or range(len(device.seconds)), device.seconds, device.moments()
    ):
        # A sample missing from the results interrupts the sequence.
        if number != last + 1:
            stretch = []
        last = number
        stretch = [*stretch, second] if second is not None and holds(moment) else []
        if is_sustained(stretch):
            return True
    return False


def _timed(device: DeviceTelemetry) -> list[tuple[float, Reading]]:
    return [
        (second, moment)
        for second, moment in zip(device.seconds, device.moments())
        if second is not None and moment
    ]


def _heat(device: DeviceTelemetry, hottest: str, suffix: str) -> Iterator[Finding]:
    limit, word = device.limits[hottest], QUANTITIES[hottest].short
    every = _timed(device)

    def at_limit(reading: Reading) -> bool:
        return reading.get(hottest, 0.0) >= limit.value - AT_LIMIT

    def stands_still(reading: Reading) -> bool:
        return reading.get(hottest, 0.0) >= limit.value - _FAN_MUST_TURN and reading.get("fan_rpm") == 0

    hot = [(at, each) for at, each in every if at_limit(each)]
    stands = _lasting(device, stands_still)
    if stands:
        warm = [(at, each) for at, each in every if stands_still(each)]
        yield _finding(
            device, "fan-stopped", suffix, "warning", "hw-power-or-fault",
            f"The fan does not turn while the GPU is at {_degrees(warm, hottest)} ({word})",
            (
                _in_words(warm, hottest, word, limit.value),
                f"fan 0 rpm, driven at {_range(warm, 'fan_percent', '%')}",
                _from(limit),
            ),
            "Check whether the fan turns. If it does, its sensor is not connected, as in most notebooks. If "
            "it does not, set it to automatic (pwm1_enable 2 in hwmon). If it still does not turn, the fan "
            "or its cable is broken: end all programs on the GPU.",
        )  # fmt: skip
    if not _lasting(device, at_limit):
        return
    slowed = _slowed(hot, every)
    fans = [each["fan_percent"] for _, each in hot if "fan_percent" in each and each.get("fan_rpm") != 0]
    weak = len(fans) >= LASTING_SAMPLES and median(fans) < WEAK_FAN
    evidence = (_in_words(hot, hottest, word, limit.value), *_fan_words(fans), _from(limit))
    if slowed:
        yield _finding(
            device, "thermal-throttling", suffix, "warning", "thermal-throttling",
            f"The GPU slows down to stay cool: {word} at {_degrees(hot, hottest)}", (slowed, *evidence),
            _WEAK if weak else advice_for("thermal-throttling", frozenset()),
        )  # fmt: skip
    if weak:
        yield _finding(
            device, "weak-fan", suffix, "warning", "thermal-throttling",
            f"The fan runs at {median(fans):.0f} % while {word} is at {_degrees(hot, hottest)}", evidence,
            _FAN_ADVICE,
        )  # fmt: skip
    if not slowed and not weak and not stands:
        yield _finding(
            device, "temperature-limit", suffix, "info", "thermal-throttling",
            f"The GPU works at its temperature limit: {word} at {_degrees(hot, hottest)}", evidence,
            advice_for("thermal-throttling", frozenset()),
        )  # fmt: skip


def _slowed(hot: Sequence[tuple[float, Reading]], every: Sequence[tuple[float, Reading]]) -> str:
    """Return the evidence that heat lowers the clock, or "" if there is none."""
    # Count this flag only at the temperature limit, because an idle RX 7600S set the flag at 54 degrees.
    throttled = [at for at, each in hot if each.get("throttled_heat")]
    if len(throttled) >= LASTING_SAMPLES:
        return f"throttling reported in {len(throttled)} of {len(hot)} samples at the limit (gpu_metrics)"
    times = {at for at, _ in hot}
    busy = [
        (at, each)
        for at, each in every
        if each.get("busy_percent", 0.0) >= _BUSY and "core_clock_mhz" in each
    ]
    then = [each["core_clock_mhz"] for at, each in busy if at in times]
    before = [each["core_clock_mhz"] for at, each in busy if at not in times]
    if min(len(then), len(before)) < LASTING_SAMPLES or median(then) > _SLOWED * median(before):
        return ""
    return (
        f"under load the clock is {median(then):.0f} MHz at the limit and {median(before):.0f} MHz below it "
        f"(medians of {len(then)} and {len(before)} samples)"
    )


def _memory_heat(device: DeviceTelemetry, suffix: str) -> Iterator[Finding]:
    name = "temperature_memory_c"
    limit = device.limits[name]

    def at_limit(reading: Reading) -> bool:
        return reading.get(name, 0.0) >= limit.value - AT_LIMIT

    if _lasting(device, at_limit):
        hot = [(at, each) for at, each in _timed(device) if at_limit(each)]
        yield _finding(
            device, "memory-hot", suffix, "warning", "thermal-throttling",
            f"The memory of the GPU is at {_degrees(hot, name)}",
            (_in_words(hot, name, "memory", limit.value), _from(limit)), _FAN_ADVICE,
        )  # fmt: skip


def _vram(device: DeviceTelemetry, suffix: str) -> Iterator[Finding]:
    """Yield a finding if other programs use much GPU memory, or if GPU memory is full."""
    limit, used = device.limits["vram_used_bytes"], device.values.get("vram_used_bytes")
    seen = [at for at, each in _timed(device) if "vram_used_bytes" in each]
    if used is None or used.min is None or used.max is None or not is_sustained(seen):
        return
    least, most = used.min / limit.value, used.max / limit.value
    if max(least, most) > 1:
        return
    evidence = (f"{least:.0%} to {most:.0%} of {limit.value / 2**30:.3g} GiB in use", _from(limit))
    # No test fills the GPU memory during the whole run. So if most of the memory is in use in every sample,
    # other programs use it.
    if least >= _VRAM_TAKEN:
        yield _finding(
            device, "vram-taken", suffix, "warning", "vram-oom",
            f"GPU memory was always at least {least:.0%} full: other programs use it", evidence,
            "End these programs: `sudo fuser -v /dev/kfd /dev/dri/*` lists them.",
        )  # fmt: skip
    elif most >= _VRAM_FULL:
        yield _finding(
            device, "vram-full", suffix, "info", "vram-oom", f"GPU memory was up to {most:.0%} full",
            evidence,
            "If your own training fills it, use a smaller batch.",
        )  # fmt: skip


def _power(device: DeviceTelemetry, suffix: str) -> Iterator[Finding]:
    """Yield a finding if a card draws as much power as its cap allows."""
    limit = device.limits["power_w"]
    busy = [
        (at, each)
        for at, each in _timed(device)
        if each.get("busy_percent", 0.0) >= _BUSY and "power_w" in each
    ]
    capped = [(at, each) for at, each in busy if each["power_w"] >= _AT_CAP * limit.value]
    # Power oscillates, so the samples at the cap need not be consecutive.
    if is_sustained([at for at, _ in capped]) and 2 * len(capped) >= len(busy):
        yield _finding(
            device, "power-cap", suffix, "info", "benign-warning",
            f"The GPU runs at its power limit: {limit.value:.0f} W",
            (
                f"power {_range(capped, 'power_w', ' W')} in {len(capped)} of {len(busy)} busy samples",
                _from(limit),
            ),
            "This is normal and not a fault. A higher power1_cap gives a little more speed and much more "
            "heat.",
        )  # fmt: skip


def _finding(
    device: DeviceTelemetry, name: str, suffix: str, severity: str, cause: str, title: str,
    evidence: Sequence[str], advice: str,
) -> Finding:  # fmt: skip
    layers = {"vram-oom": "oom", "benign-warning": "warning-only"}
    who = f"{device.name} ({device.device}), {device.samples} samples"
    if device.numbers:
        who += f"; only the {len(device.numbers)} saved samples are counted here"
    return Finding(
        f"{name}{suffix}", severity, cause, layers.get(cause, "hardware"), title, (*evidence, who), advice
    )


def _from(limit: Limit) -> str:
    return f"limit from {limit.source}"


def _in_words(moments: Sequence[tuple[float, Reading]], quantity: str, word: str, limit: float) -> str:
    first, last = moments[0][0], moments[-1][0]
    return (
        f"{word} {_range(moments, quantity, '°C')} in {len(moments)} samples between second {first:.0f} and "
        f"{last:.0f}; the limit is {limit:.0f} °C"
    )


def _fan_words(fans: Sequence[float]) -> tuple[str, ...]:
    if not fans:
        return ()
    return (f"fan {min(fans):.0f} to {max(fans):.0f} % meanwhile, median {median(fans):.0f} %",)


def _degrees(moments: Sequence[tuple[float, Reading]], quantity: str) -> str:
    return f"{max(each[quantity] for _, each in moments):.0f} °C"


def _range(moments: Sequence[tuple[float, Reading]], quantity: str, unit: str) -> str:
    found = [each[quantity] for _, each in moments if quantity in each]
    if not found:
        return "unknown"
    least, most = f"{min(found):.0f}", f"{max(found):.0f}"
    gap = " " if unit in ("%", "°C") else ""
    return f"{least}{gap}{unit}" if least == most else f"{least} to {most}{gap}{unit}"


def alarms(reading: Reading, limits: Mapping[str, float]) -> tuple[str, ...]:
    """Return one phrase for each problem that a single reading of the sensors shows."""
    room = {name: limits[name] - reading[name] for name in TEMPERATURES if name in reading and name in limits}
    found = [
        f"{QUANTITIES[name].short} {reading[name]:.0f} °C, limit {limits[name]:.0f} °C"
        for name, degrees in room.items()
        if degrees <= AT_LIMIT
    ]
    chip = next((room[name] for name in _CHIP if name in room), math.inf)
    if chip <= AT_LIMIT and reading.get("throttled_heat"):
        found.append("slowed down for heat")
    if chip <= _FAN_MUST_TURN and reading.get("fan_rpm") == 0:
        found.append("fan does not turn")
    elif chip <= AT_LIMIT and reading.get("fan_percent", 100.0) < WEAK_FAN:
        found.append(f"fan at {reading['fan_percent']:.0f} % only")
    vram = limits.get("vram_used_bytes")
    if vram and reading.get("vram_used_bytes", 0.0) >= _VRAM_FULL * vram:
        found.append("GPU memory nearly full")
    return tuple(found)
