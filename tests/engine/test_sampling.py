"""Samples of a run: written as they come, bounded in what results keep, and never in the way."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from rocmprobe.detect import sensors as sensing
from rocmprobe.detect.tree import Tree
from rocmprobe.engine.sampling import NAME, Sampler, sampled
from rocmprobe.model.results import BadInput
from rocmprobe.model.telemetry import POINTS, summary
from rocmprobe.simulate.machines import load_machine

DEVICES = (
    sensing.SensorDevice("0000:0b:00.0", "A", folder="/a"),
    sensing.SensorDevice("0000:0c:00.0", "B", folder="/b"),
)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensing, "find_devices", lambda tree: DEVICES)
    monkeypatch.setattr(sensing, "read_limits", lambda tree, device: {})
    monkeypatch.setattr(sensing, "read", lambda tree, device: {"power_w": 20.04})


def sample(folder: Path, enough: int, interval: float = 0.01) -> None:
    """Until there are ``enough`` lines."""
    sampler = Sampler(folder, True, Tree(Path("/")), interval)
    sampler.start()
    ends = time.monotonic() + 10
    while time.monotonic() < ends and len(lines(folder)) < enough:
        time.sleep(0.01)
    sampler.stop()


def lines(folder: Path) -> list[str]:
    return (folder / NAME).read_text().splitlines() if (folder / NAME).exists() else []


@pytest.mark.usefixtures("two_gpus")
def test_every_gpu_is_sampled_and_read_back(tmp_path: Path) -> None:
    sample(tmp_path, 10)
    first, second = sampled(tmp_path)
    assert (first.device, first.name, second.name) == ("0000:0b:00.0", "A", "B")
    assert first.samples >= 2
    assert first.values["power_w"].values == (20.0,) * first.samples
    assert first.started.endswith("Z")


@pytest.mark.usefixtures("two_gpus")
def test_a_read_that_never_returns_costs_only_its_own_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()

    def read(tree: Tree, device: sensing.SensorDevice) -> dict[str, float]:
        return {"power_w": float(len(os.read(reading, 1)))} if device.name == "A" else {"power_w": 5.0}

    monkeypatch.setattr(sensing, "read", read)
    before = threading.active_count()
    sample(tmp_path, 5)
    assert [each.device for each in sampled(tmp_path)] == ["0000:0c:00.0"]
    written = lines(tmp_path)
    os.close(writing)
    while threading.active_count() > before:
        time.sleep(0.01)
    os.close(reading)
    # What comes after the end is not written.
    assert lines(tmp_path) == written


@pytest.mark.usefixtures("two_gpus")
def test_a_torn_line_of_a_killed_run_does_not_cost_the_next_one(tmp_path: Path) -> None:
    good = json.dumps({"at": 1.0, "device": "0000:0b:00.0", "values": {"power_w": 3.0}})
    (tmp_path / NAME).write_text(f'{good}\n{{"at": 2.0, "dev')
    sample(tmp_path, 7)
    first, _ = sampled(tmp_path)
    assert (first.name, first.values["power_w"].min) == ("A", 3.0)


def test_what_is_no_sample_is_passed_over(tmp_path: Path) -> None:
    assert sampled(tmp_path) == ()
    (tmp_path / NAME).write_text('[1]\nnull\n{"at": "x", "device": "cpu"}\n{"device": 3}\n\x00\n')
    assert sampled(tmp_path) == ()


def test_what_results_keep_is_bounded_and_its_extremes_are_of_all() -> None:
    samples = [(float(second), {"power_w": float(second % 997)}) for second in range(15_000)]
    found = summary("0000:0b:00.0", "A", "", samples, {})
    kept = found.values["power_w"]
    assert POINTS / 2 < len(found.seconds) == len(kept.values) <= POINTS
    assert (found.samples, kept.min, kept.max) == (15_000, 0.0, 996.0)
    assert found.moments()[1] == samples[50][1]


@pytest.mark.parametrize(
    "change",
    [
        "values.power_w = [1]",
        "values.power = [1, 2]",
        'limits.power_w = "150"',
        "values.power_w = 3",
        "other = 1",
    ],
)
def test_a_machine_file_with_unfit_telemetry_is_refused(tmp_path: Path, change: str) -> None:
    row = '[[telemetry]]\ndevice = "a"\nname = "A"\nseconds = [0, 1]\n'
    tables = "" if change.startswith("values") else "values.power_w = [1, 2]\n"
    tables += "" if change.startswith("limits") else "limits.power_w = 150\n"
    file = tmp_path / "machine.toml"
    file.write_text(f'summary = "s"\nsource = "t"\n{row}{tables}{change}\n')
    with pytest.raises(BadInput, match="telemetry"):
        load_machine(str(file))
