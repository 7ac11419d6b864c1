"""GPU nodes in KFD's topology, and the names of instruction set architectures."""

from __future__ import annotations

import pytest

from rocmprobe.runtimes.kfd import gpu_nodes, isa_name, native_isa, parse_properties, pci_address


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (100100, "gfx1010"),
        (100102, "gfx1012"),
        (100300, "gfx1030"),
        (90010, "gfx90a"),
        (90012, "gfx90c"),
        (90402, "gfx942"),
        (80003, "gfx803"),
        (110501, "gfx1151"),
        (130715, "gfx137f"),
    ],
)
def test_isa_name_has_minor_and_stepping_in_hexadecimal(version, name):
    assert isa_name(version) == name


def test_nodes_with_simds_are_gpus_in_the_order_of_their_numbers():
    files = {
        "0/properties": "cpu_cores_count 12\nsimd_count 0\n",
        "2/properties": "simd_count 80\ngfx_target_version 100100\nlocation_id 768\ndomain 0\n",
        "10/properties": "simd_count 96\nlocation_id 2561\ndomain 1\n",
    }
    nodes = gpu_nodes(["10", "2", "0", "3", "generation_id"], files.get)
    assert list(nodes) == [2, 10]
    assert (native_isa(nodes[2]), pci_address(nodes[2])) == ("gfx1010", "0000:03:00.0")
    assert (native_isa(nodes[10]), pci_address(nodes[10])) == (None, "0001:0a:00.1")


@pytest.mark.parametrize("value", ["", "x", "-1", "1e5", "0x10", str(1 << 64), "9" * 5000])
def test_a_value_that_is_no_64_bit_decimal_is_skipped(value):
    assert parse_properties(f"simd_count {value}\nlargest {(1 << 64) - 1}\n") == {"largest": (1 << 64) - 1}
