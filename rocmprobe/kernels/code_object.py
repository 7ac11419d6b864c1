"""Reader for code objects of AMD GPUs.

A code object is a 64-bit ELF file. The note of type 32 with the name "AMDGPU" contains metadata in
MessagePack (LLVM, "User Guide for AMDGPU Backend", Code Object Metadata; github.com/msgpack/msgpack,
spec.md).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

# This module needs only the standard library, because the bypass imports it into user programs.
_MAGIC = b"\x7fELF\x02\x01"
_MACHINE_AMDGPU = 224
_FLAGS_AT, _MACHINE_AT, _SEGMENTS_AT = 48, 18, 32
_NOTE_SEGMENT, _NOTE_METADATA = 4, 32
#: ``e_flags`` by ISA (EF_AMDGPU_MACH in llvm/BinaryFormat/ELF.h), without features such as XNACK.
_FLAGS = {"gfx1030": 0x36}
_DEEPEST = 32


@dataclass(frozen=True)
class Kernel:
    """Resources of a kernel: registers per thread, and memory in bytes."""

    name: str
    vgprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch: int
    lds: int
    arguments: int

    @property
    def refusal(self) -> str:
        """Reason why the kernel must not run (spilled registers or scratch memory), or "" if it can run."""
        if not (self.vgpr_spills or self.sgpr_spills or self.scratch):
            return ""
        return (
            f"{self.name} uses memory instead of registers: {self.vgpr_spills} vector and {self.sgpr_spills} "
            f"scalar registers spilled, {self.scratch} bytes of scratch"
        )


def kernels(code: bytes) -> dict[str, Kernel]:
    """Return the kernels of a code object, keyed by name.

    Raise ValueError if ``code`` is not a code object or has no metadata.
    """
    found = {}
    for each in _typed(list, metadata(code).get("amdhsa.kernels", [])):
        entry = _typed(dict, each)
        name = _typed(str, entry.get(".name"))
        found[name] = Kernel(
            name,
            vgprs=_count(entry, ".vgpr_count"),
            sgprs=_count(entry, ".sgpr_count"),
            vgpr_spills=_count(entry, ".vgpr_spill_count", 0),
            sgpr_spills=_count(entry, ".sgpr_spill_count", 0),
            scratch=_count(entry, ".private_segment_fixed_size"),
            lds=_count(entry, ".group_segment_fixed_size"),
            arguments=_count(entry, ".kernarg_segment_size"),
        )
    return found


def metadata(code: bytes) -> Mapping[str, Any]:
    """Return the metadata of a code object, with keys such as "amdhsa.kernels" and "amdhsa.target".

    Raise ValueError if ``code`` is not a code object or has no metadata.
    """
    _check(code)
    try:
        (start,) = struct.unpack_from("<Q", code, _SEGMENTS_AT)
        size, count = struct.unpack_from("<HH", code, 54)
        for number in range(count):
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", code, start + number * size)
            if kind == _NOTE_SEGMENT:
                for name, note, content in _notes(code[offset : offset + length]):
                    if name == b"AMDGPU" and note == _NOTE_METADATA:
                        found: dict[str, Any] = _typed(dict, parse_messagepack(content))
                        return found
    except (struct.error, OverflowError) as error:
        raise ValueError(f"the code object is incomplete: {error}") from None
    raise ValueError("the code object has no metadata")


def elf_flags(code: bytes) -> int:
    """Return ``e_flags``, which encodes the ISA. Raise ValueError if ``code`` is not a code object."""
    _check(code)
    return int.from_bytes(code[_FLAGS_AT : _FLAGS_AT + 4], "little")


def with_isa(code: bytes, isa: str) -> bytes:
    """Return a copy of a code object with ``isa`` in the ELF header.

    Raise ValueError if ``code`` is not a code object, or if ``isa`` is not "gfx1030".
    """
    _check(code)
    if isa not in _FLAGS:
        raise ValueError(f"the ISA of a code object cannot be changed to {isa}")
    return code[:_FLAGS_AT] + _FLAGS[isa].to_bytes(4, "little") + code[_FLAGS_AT + 4 :]


def parse_messagepack(content: bytes) -> Any:
    """Parse one MessagePack value. Raise ValueError if ``content`` is invalid or longer than the value."""
    reader = _Reader(content)
    value = reader.value(0)
    if reader.at != len(content):
        raise ValueError(f"{len(content) - reader.at} bytes after the value")
    return value


def _check(code: bytes) -> None:
    machine = int.from_bytes(code[_MACHINE_AT : _MACHINE_AT + 2], "little")
    if not code.startswith(_MAGIC) or len(code) < 64 or machine != _MACHINE_AMDGPU:
        raise ValueError(f"not a code object of an AMD GPU: {len(code)} bytes, beginning {code[:8]!r}")


def _notes(content: bytes) -> list[tuple[bytes, int, bytes]]:
    found = []
    at = 0
    while at + 12 <= len(content):
        name_size, size, kind = struct.unpack_from("<III", content, at)
        name_at = at + 12
        at = name_at + (name_size + 3) // 4 * 4
        if at + size > len(content):
            raise ValueError("a note is longer than its segment")
        found.append((content[name_at : name_at + name_size].rstrip(b"\0"), kind, content[at : at + size]))
        at += (size + 3) // 4 * 4
    return found


def _typed(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"metadata: {kind.__name__} expected, not {type(value).__name__}")
    return value


def _count(entry: Mapping[Any, Any], name: str, absent: Union[int, None] = None) -> int:
    return int(_typed(int, entry.get(name, absent)))


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        head = self.number("B")
        if head <= 0x7F:
            return head
        if head >= 0xE0:
            return head - 256
        if head <= 0x8F:
            return self.mapping(head & 0x0F, depth)
        if head <= 0x9F:
            return self.array(head & 0x0F, depth)
        if head <= 0xBF:
            return self.text(head & 0x1F)
        simple = {0xC0: None, 0xC2: False, 0xC3: True}
        if head in simple:
            return simple[head]
        numbers = {
            0xCA: "f", 0xCB: "d", 0xCC: "B", 0xCD: "H", 0xCE: "I", 0xCF: "Q",
            0xD0: "b", 0xD1: "h", 0xD2: "i", 0xD3: "q",
        }  # fmt: skip
        if head in numbers:
            return self.number(numbers[head])
        sized = {
            0xC4: (self.bytes, "B"), 0xC5: (self.bytes, "H"), 0xC6: (self.bytes, "I"),
            0xD9: (self.text, "B"), 0xDA: (self.text, "H"), 0xDB: (self.text, "I"),
        }  # fmt: skip
        if head in sized:
            read, size = sized[head]
            return read(self.number(size))
        nested = {
            0xDC: (self.array, "H"), 0xDD: (self.array, "I"),
            0xDE: (self.mapping, "H"), 0xDF: (self.mapping, "I"),
        }  # fmt: skip
        if head in nested:
            read_nested, size = nested[head]
            return read_nested(self.number(size), depth)
        raise ValueError(f"a value of type 0x{head:02x}")

    def number(self, kind: str) -> Any:
        return struct.unpack(f">{kind}", self.bytes(struct.calcsize(kind)))[0]

    def bytes(self, size: int) -> bytes:
        if self.at + size > len(self.content):
            raise ValueError("ends within a value")
        self.at += size
        return self.content[self.at - size : self.at]

    def text(self, size: int) -> str:
        return self.bytes(size).decode("utf-8", "strict")

    def array(self, count: int, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(count)]

    def mapping(self, count: int, depth: int) -> dict[Any, Any]:
        found = {}
        for _ in range(count):
            key = self.value(depth + 1)
            if not isinstance(key, (str, int)):
                raise ValueError("a key is neither text nor a number")
            found[key] = self.value(depth + 1)
        return found
