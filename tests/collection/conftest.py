"""Thirty bundles, and the pages made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bundles import Records, disguised, records, submitted, variant
from runs import SMALL, cli, machine_file, run

NAVI10 = {
    "native_isa": "gfx1010", "effective_isa": "gfx1010", "name": "Radeon RX 5700 XT", "pci_id": "0x731f",
    "revision": "0xc1", "cus": 40, "vram_bytes": 8 << 30, "driver": "amdgpu",
}  # fmt: skip
NAVI14 = {
    **NAVI10, "native_isa": "gfx1012", "effective_isa": "gfx1030", "name": "Radeon RX 5500 XT",
    "pci_id": "0x7340",
}  # fmt: skip
NAVI31 = {
    **NAVI10, "native_isa": "gfx1100", "effective_isa": "gfx1100", "name": "Radeon RX 7900 XTX",
    "pci_id": "0x744c",
}  # fmt: skip
OLD, NEW = {"torch.version": "2.4.0+rocm6.1"}, {"torch.version": "2.12.0+rocm10.1.0"}
WORKS = {"/default/convolution/": "pass"}


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """A run in which convolution fails as PyTorch comes, and works without MIOpen."""
    folder = tmp_path_factory.mktemp("rows")
    fault = {"library": "miopen", "effect": "raise", "message": "miopenStatusUnknownError"}
    machine = machine_file(folder / "machine.toml", fault)
    settings = ("--settings", "default,vendor-off", *SMALL[:2], *SMALL[4:])
    return disguised(records(run(folder / "out", "--simulate", machine, *settings).folder))


@pytest.fixture(scope="session")
def bundles(rows: Records, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty bundles: three chips, two stacks, one chip on which people disagree."""
    folder, target = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("repository") / "bundles"
    number = 0

    def add(gpu: dict[str, Any], facts: dict[str, Any], states: dict[str, str], label: str = "") -> None:
        nonlocal number
        number += 1
        started = f"2026-0{1 + number // 10}-{1 + number % 28:02}T12:00:00Z"
        changed = variant(rows, gpu, facts, started, states)
        submitted(folder / str(number), changed, target, label)

    for kernel in range(8):
        add(NAVI10, {**OLD, "kernel.release": f"6.{kernel}.0"}, {})
        add(NAVI10, {**NEW, "kernel.release": f"6.{kernel}.0"}, {} if kernel % 4 else WORKS)
        add(NAVI31, {**NEW, "kernel.release": f"6.{kernel}.0"}, WORKS)
    for _ in range(3):
        add(NAVI14, OLD, {}, "box 1")
    for _ in range(3):
        add(NAVI14, NEW, {"/default/convolution/": "crash"})
    assert len(list(target.glob("*/*.zip"))) == 30
    return target


@pytest.fixture(scope="session")
def site(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    done = cli("table", bundles, "--site", folder, "--repository", "https://example.org/r")
    assert (done.returncode, done.stderr) == (0, "")
    return folder
