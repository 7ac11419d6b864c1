"""The table of what takes a GPU in WSL, and the file that users add to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.knowledge import gpus, wsl
from rocmprobe.knowledge.stacks import stacks
from rocmprobe.text.tables import table
from rocmprobe.text.versions import version_numbers


def test_rows_have_sources_and_known_chips():
    rows = [table("wsl")["bridge"], *table("wsl")["listed"], *table("wsl")["family"]]
    assert all(row["source"] for row in rows)
    for pci, gfx in wsl.listed().items():
        assert gpus.gfx_of(int(pci, 16)) in (gfx, None), pci
    known = {row.family for row in gpus.all_targets()}
    assert {family.name for family in wsl.families()} <= known
    assert {family.works for family in wsl.families()} == {"no", "by dids.conf", "listed"}
    # Who is listed is of a family that is said to be.
    assert {gpus.family(gfx) for gfx in wsl.listed().values()} <= {
        family.name for family in wsl.families() if family.works == "listed"
    }


def test_stacks_for_wsl_are_new_enough_for_it():
    first = version_numbers(table("wsl")["bridge"]["first_rocm"])
    # Nightlies name no release.
    releases = [version_numbers(stack.rocm) for stack in stacks() if "wsl" in stack.systems and stack.rocm]
    assert len(releases) > 3
    assert min(releases) >= first


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0x73FF,10,3,2", {"0x73ff": "gfx1032"}),
        ("  0x73ff, 10, 3, 2 an RX 6600", {"0x73ff": "gfx1032"}),
        ("29695,10,3,2", {"0x73ff": "gfx1032"}),
        ("0x1234,9,0,10", {"0x1234": "gfx90a"}),
        ("# 0x73ff,10,3,2", {}),
        ("0x73ff,10,3", {}),
        ("0x73ff ,10,3,2", {}),
        ("0x1ffff,10,3,2", {}),
        ("0x73ff,0,3,2", {}),
        ("0x73ff,10,3,2\n0x73ff,10,1,0", {"0x73ff": "gfx1032"}),
    ],
)
def test_lines_of_dids_conf(text, found):
    assert wsl.entries(text) == found


@given(st.text(max_size=200))
def test_any_text_is_read(text):
    assert all(pci.startswith("0x") and gfx.startswith("gfx") for pci, gfx in wsl.entries(text).items())


@pytest.mark.parametrize(
    ("rocm", "old", "variable"),
    [("5.2.21151", True, True), ("7.2.1", False, True), ("7.13.0", False, False), (None, False, True)],
)
def test_which_rocm_loads_it(rocm, old, variable):
    assert (wsl.too_old(rocm), wsl.needs_variable(rocm)) == (old, variable)
