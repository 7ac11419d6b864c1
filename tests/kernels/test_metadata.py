"""Code objects as bytes: whatever they hold, it is read or it is a ValueError."""

from __future__ import annotations

import struct
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.kernels import code_object

#: The shortest form of each value, as LLVM writes it.
packed = msgspec.msgpack.encode


def made(*notes):
    """An ELF file of an AMD GPU with one segment of notes (name, type, content)."""
    segment = b""
    for name, kind, content in notes:
        head = struct.pack("<III", len(name) + 1, len(content), kind)
        segment += head + (name + b"\0").ljust((len(name) + 4) // 4 * 4, b"\0")
        segment += content.ljust((len(content) + 3) // 4 * 4, b"\0")
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1\x40", 3, 224, 1, 0, 64, 0, 0x233, 64, 56, 1, 0, 0, 0
    )
    return header + struct.pack("<IIQQQQQQ", 4, 4, 120, 0, 0, len(segment), 0, 4) + segment


KERNEL = {
    ".name": "k", ".vgpr_count": 300, ".sgpr_count": 40, ".vgpr_spill_count": 2, ".sgpr_spill_count": 1,
    ".private_segment_fixed_size": 12, ".group_segment_fixed_size": 70000, ".kernarg_segment_size": 16,
}  # fmt: skip

keys = st.text(max_size=40) | st.integers(-(2**63), 2**64 - 1)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | st.text(max_size=300) | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(keys, inner, max_size=20),
    max_leaves=30,
)  # fmt: skip


@given(values)
def test_messagepack_is_read_as_it_was_written(value):
    assert code_object.parse_messagepack(packed(value)) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_value_error(content):
    with suppress(ValueError):
        code_object.parse_messagepack(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xc1",
        b"\x91" * 5000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x81\x90\x00",
        b"\xa1\xff",
        b"\x01\x02",
    ],
)
def test_what_is_no_messagepack_is_a_value_error(content):
    with pytest.raises(ValueError):  # noqa: PT011
        code_object.parse_messagepack(content)


def test_the_numbers_of_a_kernel():
    other = {**KERNEL, ".name": "fits", ".vgpr_spill_count": 0, ".sgpr_spill_count": 0}
    other[".private_segment_fixed_size"] = 0
    code = made((b"GNU", 3, b"12345"), (b"AMDGPU", 32, packed({"amdhsa.kernels": [KERNEL, other]})))
    found = code_object.kernels(code)
    assert found["k"] == code_object.Kernel("k", 300, 40, 2, 1, 12, 70000, 16)
    assert found["k"].refusal == (
        "k uses memory instead of registers: 2 vector and 1 scalar registers spilled, 12 bytes of scratch"
    )
    assert found["fits"].refusal == ""


@pytest.mark.parametrize(
    "described",
    [
        [], {"amdhsa.kernels": 1}, {"amdhsa.kernels": [1]}, {"amdhsa.kernels": [{}]},
        {"amdhsa.kernels": [{**KERNEL, ".vgpr_count": "many"}]}, {"amdhsa.kernels": [{".name": "k"}]},
    ],
)  # fmt: skip
def test_metadata_that_are_something_else_are_a_value_error(described):
    with pytest.raises(ValueError, match="metadata"):
        code_object.kernels(made((b"AMDGPU", 32, packed(described))))


@given(st.data())
def test_a_damaged_code_object_is_read_or_a_value_error(data):
    code = bytearray(made((b"AMDGPU", 32, packed({"amdhsa.kernels": [KERNEL]}))))
    for _ in range(data.draw(st.integers(1, 4))):
        code[data.draw(st.integers(0, len(code) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(code[: data.draw(st.integers(0, len(code)))])
    for read in (
        code_object.kernels,
        code_object.elf_flags,
        lambda code: code_object.with_isa(code, "gfx1030"),
    ):
        with suppress(ValueError):
            read(damaged)


def test_segments_beyond_any_address_are_a_value_error():
    code = bytearray(made((b"AMDGPU", 32, packed({"amdhsa.kernels": [KERNEL]}))))
    code[32:40] = (1 << 63).to_bytes(8, "little")
    with pytest.raises(ValueError, match="the code object is incomplete"):
        code_object.kernels(bytes(code))


def test_the_isa_in_the_header():
    code = made((b"AMDGPU", 32, packed({})))
    shown = code_object.with_isa(code, "gfx1030")
    assert (code_object.elf_flags(code), code_object.elf_flags(shown)) == (0x233, 0x36)
    assert shown[:48] + code[48:52] + shown[52:] == code
    with pytest.raises(ValueError, match="cannot be changed to gfx1100"):
        code_object.with_isa(code, "gfx1100")


@pytest.mark.parametrize("content", [b"", b"\x7fELF\2\1", b"\x7fELF\2\1" + bytes(100), made()])
def test_what_is_no_code_object_is_a_value_error(content):
    with pytest.raises(ValueError, match="code object"):
        code_object.kernels(content)
