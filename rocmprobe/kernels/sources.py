"""The source of a module: all kernels for one dtype, with the declarations of what they take."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from types import ModuleType

from rocmprobe.kernels import probe
from rocmprobe.kernels.launches import declaration

#: Each has ``STRUCTURES`` (what its kernels take) and ``SOURCES`` (files in ``source/``, in order).
FAMILIES: tuple[ModuleType, ...] = (probe,)
DTYPES = ("float32", "float16", "bfloat16")
_FOLDER = Path(__file__).with_name("source")


@cache
def source_text(dtype: str, families: tuple[ModuleType, ...] = FAMILIES) -> str:
    """The source for one of DTYPES, as it is given to a compiler."""
    if dtype not in DTYPES:
        raise ValueError(f"{dtype!r} is none of {', '.join(DTYPES)}")
    structures = dict.fromkeys(each for family in families for each in family.STRUCTURES)
    files = dict.fromkeys(name for family in families for name in family.SOURCES)
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
    """Of the sources of all dtypes, 16 hexadecimal digits."""
    texts = "\0".join(map(source_text, DTYPES))
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def _text(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")
