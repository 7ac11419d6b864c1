"""The watch over a soak: sensors and kernel log of a machine's files, the limit, and what is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rocmprobe.detect.tree import Tree
from rocmprobe.engine import soaking
from rocmprobe.engine.journal import NullJournal
from rocmprobe.engine.soaking import SoakWatch, of_machine
from rocmprobe.model.results import Fact, Gpu

ADDRESS = "0000:0b:00.0"
DEVICE = f"sys/bus/pci/devices/{ADDRESS}"
HWMON = f"{DEVICE}/hwmon/hwmon3"
GPU = Gpu(address=Fact(ADDRESS), vendor=Fact("amd"))


class Card:
    """The files of a card below a folder, and what a watch wrote."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records: list[Mapping[str, Any]] = []
        for name, content in {
            f"{DEVICE}/vendor": "0x1002", f"{DEVICE}/class": "0x030000", f"{DEVICE}/device": "0x731f",
            f"{DEVICE}/revision": "0xca", f"{HWMON}/temp2_label": "junction", f"{HWMON}/temp2_crit": "105000",
            f"{HWMON}/power1_average": "148000000",
        }.items():  # fmt: skip
            self.write(name, content)
        self.degrees(70)
        self.log("amdgpu: GPU reset begin!")

    def write(self, name: str, content: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")

    def degrees(self, degrees: int) -> None:
        self.write(f"{HWMON}/temp2_input", str(1000 * degrees))

    def log(self, *lines: str) -> None:
        text = "\n".join(f"[    {number}.000000] {line}" for number, line in enumerate(lines))
        self.write("dmesg.txt", text)

    def watch(self, stop_at: float = 0) -> SoakWatch:
        return of_machine("case", NullJournal(self.records.append), GPU, stop_at, Tree(self.root))


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Card:
    """A card whose sensors are read at every report."""
    monkeypatch.setattr(soaking, "_SENSORS_EVERY", 0.0)
    monkeypatch.setattr(soaking, "_KERNEL_EVERY", 0.0)
    return Card(tmp_path)


def progress(steps: int, *mismatches: int) -> dict[str, Any]:
    found = [{"step": step, "seconds": float(step)} for step in mismatches]
    return {"steps": steps, "seconds": float(steps), "mismatches": len(found), "mismatch": found}


def test_peaks_and_the_heat_of_each_mismatch_are_kept(card: Card) -> None:
    watch = card.watch()
    assert watch.take(progress(1))
    card.degrees(97)
    assert watch.take(progress(2, 2))
    card.degrees(80)
    assert watch.take(progress(3, 2, 3))
    assert watch.conditions["before"]["temperature_junction_c"] == 70
    assert watch.conditions["peak"] == {"temperature_junction_c": 97, "power_w": 148}
    assert [each["temperature_c"] for each in watch.numerics["mismatch"]] == [97, 80]
    written = card.records[-1]
    assert (written["record"], written["progress"]["steps"]) == ("progress", 3)


def test_three_readings_at_the_limit_of_the_card_end_it(card: Card) -> None:
    watch = card.watch()
    card.degrees(106)
    assert watch.take(progress(1))
    assert watch.take(progress(2))
    assert not watch.take(progress(3))
    stopped = watch.numerics["stopped"]
    assert (stopped["quantity"], stopped["value"], stopped["limit"]) == ("temperature_junction_c", 106, 105)


def test_one_cooler_reading_begins_the_count_again(card: Card) -> None:
    watch = card.watch(stop_at=90)
    for degrees, goes_on in ((91, True), (91, True), (89, True), (91, True), (90, True), (95, False)):
        card.degrees(degrees)
        assert watch.take(progress(1)) is goes_on


def test_only_new_messages_of_the_kernel_count(card: Card) -> None:
    watch = card.watch()
    watch.take(progress(1))
    assert watch.numerics["kernel_events"] == []
    assert watch.numerics["kernel_log"] == "/dmesg.txt"
    card.log("amdgpu: GPU reset begin!", "amdgpu: GPU reset begin!", "amdgpu: ring gfx_0.0.0 timeout, x")
    watch.end(answers=True)
    events = watch.numerics["kernel_events"]
    assert [(each["kind"], each["count"]) for each in events] == [("gpu-reset", 1), ("ring-timeout", 1)]
    assert watch.numerics["answers"] is True


def test_a_log_that_cannot_be_read_is_named(card: Card) -> None:
    (card.root / "dmesg.txt").unlink()
    assert card.watch().numerics["kernel_log"].startswith("not read: ")
