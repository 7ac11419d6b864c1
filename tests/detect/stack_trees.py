"""Stand-ins for what ROCm and its wheels install: the file names of real ones, and small ELF files."""

from __future__ import annotations

import struct
from collections.abc import Sequence

SITE = "usr/local/lib/python3.10/site-packages"
TORCH = f"{SITE}/torch"
VERSION = """__version__ = '{0}'
cuda: Optional[str] = None
hip: Optional[str] = '{1}'
"""
#: What official wheels of torch 1.13.1 for ROCm 5.2 hold in torch/lib, by pytorch/builder's recipe.
WHEEL_LIBRARIES = (
    "libMIOpen.so.1", "libamd_comgr.so.2", "libamdhip64.so.5", "libhsa-runtime64.so.1", "librocblas.so.0",
)  # fmt: skip
WHEEL_TENSILE = [
    name.format(gfx)
    for gfx in ("gfx900", "gfx906", "gfx908", "gfx90a", "gfx1030")
    for name in ("TensileLibrary_{}.co", "TensileLibrary_{}.dat")
] + [
    "Kernels.so-000-gfx1030.hsaco",
    "Kernels.so-000-gfx90a-xnack+.hsaco",
    "Kernels.so-000-gfx90a-xnack-.hsaco",
]
WHEEL_TARGETS = ["gfx900", "gfx906", "gfx908", "gfx90a", "gfx1030"]


def bundle(targets: Sequence[str], size: int = 100, kind: str = "hipv4-amdgcn-amd-amdhsa--") -> bytes:
    """A clang offload bundle: a code object of ``size`` bytes for each target, filled to a page."""
    ids = [b"host-x86_64-unknown-linux--", *((kind + target).encode() for target in targets)]
    table = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(ids))
    offset = 4096
    for number, name in enumerate(ids):
        table += struct.pack("<3Q", offset, size if number else 0, len(name)) + name
        offset += size if number else 0
    content = table.ljust(4096, b"\0") + b"\x7f" * (offset - 4096)
    return content + b"\0" * (-len(content) % 4096)


def elf(
    sections: Sequence[tuple[str, bytes]] = (),
    needed: Sequence[str] = (),
    rpath: str = "",
    runpath: str = "",
) -> bytes:
    """A 64-bit shared library of these sections and links."""
    strings, dynamic = b"\0", b""
    for tag, texts in ((1, needed), (15, [rpath] if rpath else []), (29, [runpath] if runpath else [])):
        for text in texts:
            dynamic += struct.pack("<qQ", tag, len(strings))
            strings += text.encode() + b"\0"
    dynamic += struct.pack("<qQ", 0, 0)
    every = [("", b""), (".dynamic", dynamic), (".dynstr", strings), *sections]
    names = b""
    headers, content = [], b""
    for name, data in [*every, (".shstrtab", b"")]:
        start = len(names)
        names += name.encode() + b"\0"
        headers.append((start, 64 + len(content), len(data)))
        content += data
    headers[-1] = (headers[-1][0], 64 + len(content), len(names))
    content += names
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<2HI3QI6H", 3, 62, 1, 0, 0, 64 + len(content), 0, 64, 0, 0, 64, len(headers), len(headers) - 1
    )
    table = b"".join(
        struct.pack("<2I4Q2I2Q", name, 1, 0, 0, at, size, 0, 0, 1, 0) for name, at, size in headers
    )
    return header + content + table


def torch_hip(*bundles: bytes, **links: object) -> bytes:
    return elf([(".hip_fatbin", b"".join(bundles))], **links)


def wheel_files(version: str = "1.13.1+rocm5.2", hip: str = "5.2.21151-afdc89f8") -> dict[str, str | bytes]:
    """The files of an installed torch wheel for ROCm, without their contents."""
    metadata = f"{SITE}/torch-{version}.dist-info"
    needed = ["libamdhip64.so.5", "libMIOpen.so.1", "librocblas.so.0", "libc.so.6"]
    return {
        f"{TORCH}/version.py": VERSION.format(version, hip),
        f"{metadata}/WHEEL": "Wheel-Version: 1.0\nTag: cp310-cp310-linux_x86_64\n",
        f"{metadata}/INSTALLER": "pip\n",
        **{f"{TORCH}/lib/{name}": elf() for name in WHEEL_LIBRARIES},
        **{f"{TORCH}/lib/rocblas/library/{name}": "" for name in WHEEL_TENSILE},
        f"{TORCH}/lib/libtorch_hip.so": torch_hip(bundle(WHEEL_TARGETS), needed=needed, runpath="$ORIGIN"),
    }
