"""The table of builds, and whom it speaks to."""

from __future__ import annotations

import re

import pytest

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.builds import (
    KINDS,
    Installed,
    broken,
    builds,
    known_to_break,
    rocm_of,
    with_code_for,
)

ROWS = (*builds(), *broken())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_every_row_has_a_source_a_date_and_chips_that_exist(row) -> None:
    assert "https://" in row.source
    assert re.fullmatch(r"20\d\d(-\d\d){0,2}", row.date)
    assert row.gfx
    assert all(gpus.target(name) for name in row.gfx)
    assert row.text.endswith(".")
    assert not row.title.endswith(".")


def test_kinds_and_titles() -> None:
    assert {build.kind for build in builds()} <= set(KINDS)
    titles = [row.title for row in ROWS]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("row", broken(), ids=lambda row: row.title)
def test_every_break_can_be_met(row) -> None:
    """By a machine that is in the middle of it: a row that no machine meets says nothing."""
    rocm = row.rocm_since or row.rocm_until or None
    torch = row.torch_since or row.torch_until or None
    effective = row.effective or row.gfx[0]
    machine = Installed(row.gfx[0], effective, rocm, torch, not row.without_atomics)
    assert row in known_to_break(machine)
    assert row not in known_to_break(Installed("gfx942", effective, rocm, torch, False))
    assert not known_to_break(Installed(None))


@pytest.mark.parametrize(
    ("machine", "found"),
    [
        (Installed("gfx1010", "gfx1030", "5.2", "1.13.1+rocm5.2"), []),
        (Installed("gfx1010", "gfx1030", "5.4.2"), ["ROCm 5.3 and newer break RDNA1 cards"]),
        (Installed("gfx1010", "gfx1010", "5.7.1"), ["rocBLAS of ROCm 5.3 to 6.0"]),
        (Installed("gfx1010", "gfx1010", "6.0.2"), ["rocBLAS of ROCm 5.3 to 6.0"]),
        (Installed("gfx1010", "gfx1010", "6.1"), []),
        (Installed("gfx1102", "gfx1100", "5.7"), []),
        (Installed("gfx1102", "gfx1100", "6.2.4"), ["ROCm 6.0 and newer break gfx1102"]),
        (Installed("gfx1102", "gfx1102", "6.2.4"), []),
        (Installed("gfx1151", "gfx1151", "7.1.1"), ["ROCm before 7.2"]),
        (Installed("gfx1151", "gfx1151", "7.2.0"), []),
        (Installed("gfx1151", "gfx1151", None), []),
        (Installed("gfx900", "gfx900", "5.7", "2.1.2", False), ["torch before 2.2 computes wrong sums"]),
        (Installed("gfx900", "gfx900", "5.7", "2.1.2", True), []),
        (Installed("gfx900", "gfx900", "5.7", "2.1.2", None), []),
        (Installed("gfx900", "gfx900", "5.7", "2.2.0", False), []),
    ],
)
def test_known_to_break(machine: Installed, found: list[str]) -> None:
    titles = [row.title for row in known_to_break(machine)]
    assert [title for title, start in zip(titles, found) if title.startswith(start)] == titles
    assert len(titles) == len(found)


def test_builds_for_a_chip_begin_with_official_wheels_and_end_with_amd_s_index() -> None:
    titles = [build.title for build in with_code_for("gfx906")]
    assert titles[0] == "An official PyTorch wheel with code for gfx906"
    assert titles[-1] == "AMD's own wheels for gfx906"
    rdna1 = list(with_code_for("gfx1010:xnack-"))
    assert not any("official" in build.title for build in rdna1)
    assert 'torch[device-gfx1010]"' in rdna1[-1].text
    assert list(with_code_for("gfx9999")) == list(with_code_for(None)) == []


@pytest.mark.parametrize("gfx", ["gfx1151", "gfx900", "gfx906"])
def test_official_wheels_are_told_with_those_that_break_the_chip(gfx: str) -> None:
    official = next(build for build in with_code_for(gfx) if "official" in build.title)
    titles = [row.title for row in broken() if gfx in row.gfx]
    assert titles
    assert all(title in official.text for title in titles)
    assert official.text.endswith(".")
    assert "But" not in next(with_code_for("gfx1102")).text, "it breaks as gfx1100 only"


@pytest.mark.parametrize(
    ("torch", "rocm"),
    [("2.0.1+rocm5.4.2", "5.4.2"), ("1.13.1+rocm5.2", "5.2"), ("2.11.0a0+rocm7.11.0a20260106", "7.11.0"),
     ("2.4.0", None), ("2.4.0+cu121", None), (None, None),
     ("2.0, ROCm 5.4", "5.4"), ("rocm6.3 wheel", "6.3"), ("tensorflow-rocm 2.5", None)],
)  # fmt: skip
def test_the_rocm_that_a_torch_was_built_for(torch: object, rocm: object) -> None:
    assert rocm_of(torch) == rocm
