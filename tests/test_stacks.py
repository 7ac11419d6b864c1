"""The table of stacks, and whom it speaks to."""

from __future__ import annotations

import re

import pytest

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.options import STATUSES, options
from rocmprobe.knowledge.stacks import (
    KINDS,
    SYSTEMS,
    Installed,
    broken,
    code_loans,
    distribution_of,
    has_code,
    known_to_break,
    limits,
    publisher_tests,
    reports,
    rocm_of,
    stacks,
    system_of,
)
from rocmprobe.text.tables import table

ROWS = (*stacks(), *publisher_tests(), *reports(), *code_loans(), *limits(), *broken())


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_a_source_a_date_and_chips_that_exist(row) -> None:
    assert "https://" in row.source
    assert re.fullmatch(r"20\d\d(-\d\d){0,2}", row.date)
    assert re.fullmatch(r"(20\d\d-\d\d)?", row.checked)
    assert getattr(row, "text", ".").endswith(".")
    named = getattr(row, "gfx", None) or (*row.holds, *row.lacks)
    assert all(gpus.target(name) for name in named)


def test_names_versions_and_overrides_are_consistent() -> None:
    # Names and titles are of one row.
    for names in ([row.name for row in stacks()], [row.title for row in (*stacks(), *broken())]):
        assert len(names) == len(set(names))
    # A stack of a new ROCm needs a row in rocm_releases.toml, too.
    known = {row["rocm"] for row in table("rocm_releases")["release"]}
    assert {each.rocm for each in stacks() if each.rocm} <= known
    assert {"7.11", "7.14", "10.1"} <= known

    for row in code_loans():
        assert not set(row.gfx) & {row.posing}


@pytest.mark.parametrize("stack", stacks())
def test_every_stack_can_be_had(stack) -> None:
    assert stack.kind in KINDS
    assert stack.systems
    assert set(stack.systems) <= set(SYSTEMS)
    assert bool(stack.packages) == bool(stack.index) == (stack.kind in KINDS[:3])
    for row in publisher_tests():
        assert row.system in SYSTEMS
        assert stack.name not in row.stacks or all(has_code(stack, name) for name in row.gfx)
    assert any(has_code(stack, target.gfx) for target in gpus.all_targets())
    for name in stack.packages:
        assert "==" not in name or name.startswith("numpy") or "+rocm" in name, (
            "its local part pins the index"
        )


@pytest.mark.parametrize("report", reports())
def test_every_report_is_of_a_stack_that_the_chip_has(report) -> None:
    assert report.status in STATUSES
    for gfx in report.gfx:
        (found,) = (each for each in options(gfx, report.system) if each.stack.name == report.stack)
        assert found.report == report
        assert found.runs_as == (report.posing or gfx)


@pytest.mark.parametrize("row", broken())
def test_every_break_can_be_met(row) -> None:
    """By a machine that is in the middle of it: a row that no machine meets says nothing."""
    rocm = row.rocm_since or row.rocm_until or None
    torch = row.torch_since or row.torch_until or None
    effective = row.effective or row.gfx[0]
    kernel = row.kernel_since or row.kernel_until or None
    machine = Installed(
        row.gfx[0], effective, rocm, torch, not row.without_atomics, row.system or None, kernel
    )  # fmt: skip
    assert row in known_to_break(machine)
    assert row not in known_to_break(Installed("gfx942", effective, rocm, torch, False))
    assert not known_to_break(Installed(None))


@pytest.mark.parametrize(
    ("machine", "found"),
    [
        (Installed("gfx1010", "gfx1030", "5.2", "1.13.1+rocm5.2"), []),
        (Installed("gfx1010", "gfx1030", "5.4.2"), ["Convolution crashes or hangs with ROCm 5.3"]),
        (Installed("gfx1010", "gfx1010", "5.7.1"), ["rocBLAS of ROCm 5.3 to 6.0"]),
        (Installed("gfx1010", "gfx1010", "6.0.2"), ["rocBLAS of ROCm 5.3 to 6.0"]),
        (Installed("gfx1010", "gfx1010", "6.1"), []),
        (Installed("gfx906", "gfx906", "6.3.4"), []),
        (Installed("gfx906", "gfx906", "7.2.1"), ["rocBLAS of ROCm 6.4 to 7.2"]),
        (Installed("gfx906", "gfx906", "10.2"), []),
        (Installed("gfx1102", "gfx1100", "5.7"), []),
        (Installed("gfx1102", "gfx1100", "6.2.4"), ["ROCm 6.0 and newer break gfx1102"]),
        (Installed("gfx1102", "gfx1102", "6.2.4"), []),
        (Installed("gfx1151", "gfx1151", "7.1.1", system="linux"), ["ROCm before 7.2"]),
        (Installed("gfx1151", "gfx1151", "7.1.1", system="windows"), []),
        (Installed("gfx1151", "gfx1151", "7.2.0", system="linux"), []),
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


def names(gfx: str, system: str = "linux", status: str = "") -> list[str]:
    return [each.stack.name for each in options(gfx, system, "ubuntu") if status in ("", each.status)]


@pytest.mark.parametrize(
    ("gfx", "system", "first"),
    [
        ("gfx1010:xnack-", "linux", "amd-stable-10.1"),
        ("gfx1010", "windows", "amd-nightly"),
        ("gfx1012", "linux", "amd-stable-7.14"),
        ("gfx1031", "linux", "official-rocm7.14"),
        ("gfx1032", "linux", "official-rocm7.2"),
        ("gfx1032", "windows", "amd-stable-10.1"),
        ("gfx90c", "linux", "amd-nightly-torch2.12"),
        ("gfx1201", "linux", "amd-stable-10.1"),
        ("gfx906", "linux", "official-rocm6.3"),
        ("gfx803", "linux", "rocm-gfx803"),
    ],
)
def test_what_owners_report_comes_first(gfx: str, system: str, first: str) -> None:
    assert names(gfx, system)[0] == first


def test_the_status_of_a_stack_decides_its_place() -> None:
    # What is published and untested is called so.
    assert set(names("gfx1011", status="untested")) >= {"amd-stable-10.1", "amd-stable-7.14", "amd-nightly"}
    assert "untested" in options("gfx1011")[0].evidence
    assert "untested" not in {each.status for each in options("gfx1100")[:3]}
    # The BC-250 is in no package; it has what gfx1010 has.
    assert {each.runs_as for each in options("gfx1013")} == {"gfx1010"}
    assert {each.status for each in options("gfx1013")} == {"untested"}
    assert gpus.missing_features("gfx1013", "gfx1010") == ()
    assert options("gfx1013", "windows") == ()

    # Reports that nobody checked for a year come after those that somebody did.
    statuses = {each.stack.name: each.status for each in options("gfx1102")}
    assert statuses["official-rocm5.7"] == "unverified"
    assert list(statuses.values()).index("unverified") > list(statuses.values()).index("tested")
    # A stack that some variables repair comes after one that needs none.
    partly = names("gfx1010", status="partly")
    assert partly.index("official-rocm5.2") < partly.index("official-rocm5.7")

    # Stacks that are known to break a chip come last.
    failing = names("gfx1010", status="fails")
    assert failing == names("gfx1010")[-len(failing) :]
    assert set(failing) >= {"official-rocm7.2", "official-rocm6.3"}
    assert set(names("gfx1010", "wsl")) == set(names("gfx1010", "wsl", "fails"))
    assert names("gfx906")[-1] == "official-rocm7.2"
    assert options("gfx9999") == options(None) == ()

    # A distribution is for those who have it.
    assert "arch" not in names("gfx1010")
    assert options("gfx1010", "linux", "arch")[0].stack.name == "arch"
    assert {"arch", "fedora", "debian"} <= {each.stack.name for each in options("gfx1010")}


@pytest.mark.parametrize(
    ("name", "kernel", "system", "distribution"),
    [
        ("Ubuntu 22.04.5 LTS", "6.8.0-40-generic", "linux", "ubuntu"),
        ("Ubuntu 24.04", "5.15.167.4-microsoft-standard-WSL2", "wsl", "ubuntu"),
        ("Windows 11", None, "windows", None),
        ("Debian GNU/Linux forky/sid", None, "linux", "debian"),
        ("Manjaro Linux", "6.12", "linux", "manjaro"),
        (None, None, "linux", None),
    ],
)
def test_the_system(name: object, kernel: object, system: str, distribution: object) -> None:
    assert (system_of(name, kernel), distribution_of(name)) == (system, distribution)


@pytest.mark.parametrize(
    ("torch", "rocm"),
    [("2.0.1+rocm5.4.2", "5.4.2"), ("1.13.1+rocm5.2", "5.2"), ("2.11.0a0+rocm7.11.0a20260106", "7.11.0"),
     ("2.4.0", None), ("2.4.0+cu121", None), (None, None),
     ("2.0, ROCm 5.4", "5.4"), ("rocm6.3 wheel", "6.3"), ("tensorflow-rocm 2.5", None)],
)  # fmt: skip
def test_the_rocm_that_a_torch_was_built_for(torch: object, rocm: object) -> None:
    assert rocm_of(torch) == rocm
