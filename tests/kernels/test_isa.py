"""Which ISA a kernel is compiled for, from what the runtime and the kernel's driver say."""

from __future__ import annotations

import pytest
from stand_in_libraries import kfd_nodes

from rocmprobe.kernels.isa import Chip, hip_target, native_chip
from rocmprobe.kernels.unavailable import KernelsUnavailable


@pytest.mark.parametrize(
    ("shown", "native", "compiled", "patched"),
    [
        ("gfx1010:xnack-", "gfx1010", "gfx1010:xnack-", False),
        ("gfx1010", "gfx1010", "gfx1010:xnack-", False),
        ("gfx1030", "gfx1010", "gfx1010:xnack-", True),
        ("gfx1030", "gfx1012", "gfx1012:xnack-", True),
        ("gfx1030", "gfx1030", "gfx1030", False),
        ("gfx90a:sramecc+:xnack-", "gfx90a", "gfx90a:sramecc+:xnack-", False),
        ("gfx1100", "gfx1100", "gfx1100", False),
    ],
)
def test_code_is_for_the_silicon(shown, native, compiled, patched):
    target = hip_target(shown, native)
    assert (target.compiled, target.patched, target.native) == (compiled, patched, native)


@pytest.mark.parametrize(
    ("shown", "native"), [("gfx1030", "gfx1031"), ("gfx1100", "gfx1010"), ("gfx1010", "gfx1030")]
)
def test_other_disguises_are_refused(shown, native):
    with pytest.raises(KernelsUnavailable, match=f"this GPU is {native}, but HIP reports {shown}"):
        hip_target(shown, native)


@pytest.mark.parametrize(
    ("versions", "address", "isa"),
    [
        ((100100,), "0000:03:00.0", "gfx1010"),
        ((100100, 110000), "0000:04:00.0", "gfx1100"),
        ((100100, 110000), "0000:04:00.1", "gfx1100"),
        ((100100, 100100), "0000:0a:00.0", "gfx1010"),
        ((90010, 90010), None, "gfx90a"),
        ((100100,), "?", "gfx1010"),
    ],
)
def test_the_silicon_at_an_address(tmp_path, versions, address, isa):
    assert native_chip(address, str(kfd_nodes(tmp_path, *versions))) == Chip(isa, compute_units=40)


def test_silicon_that_cannot_be_told_from_another_is_not_known(tmp_path):
    nodes = str(kfd_nodes(tmp_path, 100100, 110000))
    with pytest.raises(KernelsUnavailable, match="gfx1010, gfx1100, but no GPU at 0001:03:00"):
        native_chip("0001:03:00.0", nodes)
    with pytest.raises(KernelsUnavailable, match="no GPU at a known PCI address"):
        native_chip(None, nodes)


@pytest.mark.parametrize(
    "properties", [b"", b"\xff\0\n", b"simd_count 80\n", b"simd_count 80\ngfx_target_version 1e5\n"]
)
def test_without_silicon_that_names_itself_it_is_not_known(tmp_path, properties):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "properties").write_bytes(properties)
    (tmp_path / "2").mkdir()
    with pytest.raises(KernelsUnavailable, match="the native ISA of the GPU is unknown"):
        native_chip("0000:03:00.0", str(tmp_path))
