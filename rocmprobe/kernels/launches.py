"""Arguments of kernels: one structure by value, declared here once for Python and for C++.

Every kernel has one parameter, a structure of integers, floats and pointers. Its declaration in the source is
generated from the ctypes structure, so the two cannot differ. The threads of a block are in one dimension,
and their number is a constant of the kernel.
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

#: Tensors of a call. ``image``, ``weight`` and ``feature`` are as in ``Geometry``, and the direction decides
#: which is the result. ``bias`` may be a null pointer. ``workspace`` holds data that lives from one launch to
#: the next.
OPERANDS = ("image", "weight", "bias", "feature", "workspace")


@dataclass(frozen=True)
class Pointer:
    """Field of a structure that gets the address of an operand plus ``offset`` bytes."""

    field: str
    operand: str
    offset: int = 0


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        kernel: name of the kernel in the module.
        grid: blocks in x, y and z.
        threads: threads in a block.
        arguments: all fields except those of ``pointers``. Never changed, because :meth:`filled` copies it.
        pointers: values of the pointer fields.
    """

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    arguments: ctypes.Structure
    pointers: tuple[Pointer, ...]

    def filled(self, addresses: Mapping[str, int]) -> ctypes.Structure:
        """Return the arguments with the addresses of the operands, or 0 for a missing operand."""
        arguments = type(self.arguments).from_buffer_copy(self.arguments)
        for pointer in self.pointers:
            address = addresses[pointer.operand]
            setattr(arguments, pointer.field, address + pointer.offset if address else None)
        return arguments


def declaration(structure: type[ctypes.Structure]) -> str:
    """Return the structure in C++. Arrays of a fixed length stay arrays.

    Structures inside it need their own declarations, which must come before.
    """
    fields: Any = structure._fields_
    lines = []
    for name, kind in fields:
        length = getattr(kind, "_length_", None)
        element = kind if length is None else kind._type_
        dimension = "" if length is None else f"[{length}]"
        lines.append(f"    {_C_NAMES.get(element) or element.__name__} {name}{dimension};")
    return "\n".join((f"struct {structure.__name__} {{", *lines, "};\n"))
