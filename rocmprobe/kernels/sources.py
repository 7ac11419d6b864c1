"""Source code of the kernels, and the list of kernel families."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from types import ModuleType

from rocmprobe.kernels import probe
from rocmprobe.kernels.families import gemm, grouped, reduction
from rocmprobe.kernels.families.family import Family
from rocmprobe.kernels.launches import declaration

#: Python modules with ``STRUCTURES`` (arguments of kernels) and ``SOURCES`` (names of files in ``source/``).
PARTS: tuple[ModuleType, ...] = (probe, reduction, grouped, gemm)
#: Families, keyed by the name of their algorithm in the bypass.
FAMILIES: dict[str, Family] = {"kernel-grouped": grouped, "kernel-gemm": gemm}
DTYPES = ("float32", "float16", "bfloat16")
_FOLDER = Path(__file__).with_name("source")


@cache
def source_text(dtype: str, parts: tuple[ModuleType, ...] = PARTS) -> str:
    """Return the source of all kernels for a dtype in DTYPES."""
    if dtype not in DTYPES:
        raise ValueError(f"{dtype!r} is not one of {', '.join(DTYPES)}")
    structures = dict.fromkeys(each for part in parts for each in part.STRUCTURES)
    files = dict.fromkeys(name for part in parts for name in part.SOURCES)
    return "\n".join(
        (
            f"#define STORAGE_{dtype.upper()}",
            _text("common.hip"),
            *map(declaration, structures),
            *map(_text, files),
        )
    )


@cache
def source_hash() -> str:
    """Return the hash of the sources of all dtypes, as 16 hexadecimal digits."""
    texts = "\0".join(map(source_text, DTYPES))
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def _text(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")
