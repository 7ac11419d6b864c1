"""Kernel launches and their arguments.

Every kernel has one parameter: a structure of integers, floats and pointers, passed by value. The C++
declaration is generated from the ctypes structure. Blocks of threads are one-dimensional.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_C_NAMES = {
    ctypes.c_int32: "int",
    ctypes.c_uint32: "unsigned",
    ctypes.c_int64: "long long",
    ctypes.c_float: "float",
    ctypes.c_void_p: "void*",
}


@dataclass(frozen=True)
class Pointer:
    """A pointer field of a structure, set to the address of ``operand`` plus ``offset`` bytes.

    The operand is "image", "weight", "bias", "feature" or "workspace". Image, weight and feature are named as
    in ``Geometry``, and the direction decides which of them is the result. The bias can be a null pointer.
    The workspace passes data from one launch to a later one.
    """

    field: str
    operand: str
    offset: int = 0


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        kernel: name of the kernel in the module.
        grid: number of blocks in x, y and z.
        arguments: values of all fields except pointers.
        pointers: pointer fields with their operands.
    """

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    arguments: ctypes.Structure
    pointers: tuple[Pointer, ...]

    def filled(self, addresses: Mapping[str, int]) -> ctypes.Structure:
        """Return a copy of the arguments with the pointer fields set."""
        arguments = type(self.arguments).from_buffer_copy(self.arguments)
        for pointer in self.pointers:
            address = addresses[pointer.operand]
            setattr(arguments, pointer.field, address + pointer.offset if address else None)
        return arguments


def fields(kind: Any, *names: str) -> list[tuple[str, Any]]:
    """Return fields of one type, for ``_fields_`` of a structure."""
    return [(name, kind) for name in names]


def declaration(structure: type[ctypes.Structure]) -> str:
    """Return the C++ declaration of a structure. Nested structures must be declared earlier."""
    members: Any = structure._fields_
    lines = []
    for name, kind in members:
        length = getattr(kind, "_length_", None)
        element = kind if length is None else kind._type_
        dimension = "" if length is None else f"[{length}]"
        lines.append(f"    {_C_NAMES.get(element) or element.__name__} {name}{dimension};")
    return "\n".join((f"struct {structure.__name__} {{", *lines, "};\n"))
