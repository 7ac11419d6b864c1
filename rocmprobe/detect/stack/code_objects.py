"""Reader for the targets (e.g. "gfx1030") for which the installed libraries have device code.

HIP stores device code in the section .hip_fatbin, as a sequence of bundles (format: clang's Clang Offload
Bundler). rocBLAS and hipBLASLt store device code in files whose names end in the target.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from typing import Optional

from rocmprobe.detect.stack import elf, loader
from rocmprobe.detect.stack.libraries import Libraries
from rocmprobe.detect.stack.torch_build import TorchBuild
from rocmprobe.detect.tree import ReadError, Tree
from rocmprobe.knowledge import gpus
from rocmprobe.model.results import Fact

SECTION = ".hip_fatbin"
_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED = b"CCOB"
_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<3Q")
#: Largest number of bundles that are read. Nearly all bundles of a library have the same targets.
_MOST_BUNDLES = 64
#: Number of bytes read for the table of a bundle. A table lists about twenty targets.
_TABLE_BYTES = 4096
#: Alignment of bundles in bytes: each bundle starts on a page.
_ALIGNMENT = 4096
_TARGET = re.compile(r"gfx[0-9][0-9a-z]*(?:-[0-9]+)*(?:-generic)?(?::[a-z]+[+-])*\Z")
#: The target in a file name, e.g. in "TensileLibrary_lazy_gfx1030.dat" or
#: "Kernels.so-000-gfx90a-xnack+.hsaco".
_TENSILE = re.compile(r"[_-](gfx[0-9a-f]+)(?:-xnack[+-])?\.(?:dat|dat\.zlib|co|hsaco)")
_LAZY_START = re.compile(r"TensileLibrary_lazy_gfx[0-9a-f]+\.dat(?:\.zlib)?")
_SPLIT_START = re.compile(r"TensileLibrary_gfx[0-9a-f]+\.dat")
_MERGED_START = "TensileLibrary.dat"
#: Section that marks a library with device code in separate files, e.g. "torch/.kpack/torch_gfx1201.kpack".
_KPACK_SECTION = ".rocm_kpack_ref"
_KPACK = re.compile(r".*_(gfx[0-9a-z_]+)\.kpack")


def read_facts(
    tree: Tree, torch: TorchBuild, libraries: Libraries, environ: Mapping[str, str]
) -> dict[str, Fact]:
    """Return the targets of torch, and the targets and paths of rocBLAS and hipBLASLt.

    The facts are ``torch.targets``, ``rocblas.targets``, ``rocblas.path``, ``hipblaslt.targets`` and
    ``hipblaslt.path``.

    The BLAS facts are about the libraries that torch loads. Without a torch for ROCm, the facts are about the
    system's libraries.
    """
    blas = {
        **_blas(tree, torch, "rocblas", libraries, environ.get("ROCBLAS_TENSILE_LIBPATH")),
        **_blas(tree, torch, "hipblaslt", libraries, environ.get("HIPBLASLT_TENSILE_LIBPATH")),
    }
    library = libraries.chosen.get("librocblas")
    bundled = library is not None and library.path == torch.bundled.get("librocblas")
    instead = blas["rocblas.targets"] if bundled else Fact()
    return {"torch.targets": _torch_targets(tree, torch, instead), **blas}


def _torch_targets(tree: Tree, torch: TorchBuild, rocblas: Fact) -> Fact:
    if not torch.for_rocm:
        return Fact(None, torch.why_not_rocm())
    library = "torch/lib/libtorch_hip.so"
    try:
        return fat_binary_targets(tree, f"{torch.folder}/lib/libtorch_hip.so", library)
    except ReadError as error:
        why = f"{library}: {error}"
    if rocblas.value:
        # rocBLAS in a wheel has the targets of torch, because the build script removes other targets.
        return Fact(rocblas.value, f"{rocblas.source}; {why}")
    return Fact(None, why)


def fat_binary_targets(tree: Tree, path: str, shown: str) -> Fact:
    """Return the targets for which a library has device code.

    ``shown`` is the library's name in the fact's ``source``. Raises ReadError if the library does not list
    its targets, e.g. because the code is compressed.
    """
    with tree.opened(path) as handle:
        sections = elf.read_sections(handle)
        if _KPACK_SECTION in sections:
            return _archive_targets(tree, path, shown)
        if SECTION not in sections:
            raise ReadError(f"no section {SECTION}")
        section = sections[SECTION]
        end = section.offset + section.size
        united: set[str] = set()
        offset = section.offset
        for _ in range(_MOST_BUNDLES):
            targets, size = _bundle(elf.read_at(handle, min(_TABLE_BYTES, end - offset), offset))
            united.update(targets)
            offset += -(-size // _ALIGNMENT) * _ALIGNMENT
            if not size or offset >= end:
                break
        if united:
            return Fact(sorted(united, key=gpus.target_order), f"{shown} {SECTION}")
        first = elf.read_at(handle, len(_COMPRESSED), section.offset)
    if first == _COMPRESSED:
        raise ReadError("its code objects are compressed, which hides their targets")
    raise ReadError(f"no target in the start of {SECTION}")


def _archive_targets(tree: Tree, path: str, shown: str) -> Fact:
    folder = f"{path.rpartition('/')[0]}/../.kpack"
    matches = [_KPACK.fullmatch(name) for name in tree.names(folder)]
    targets = sorted({match.group(1) for match in matches if match}, key=gpus.target_order)
    # If no file matches, the library has no device code, so an empty list is correct.
    return Fact(targets, f"{shown} {_KPACK_SECTION}: file names in torch/.kpack")


def _bundle(table: bytes) -> tuple[list[str], int]:
    """Return the targets and the size in bytes of the bundle at the start of ``table``.

    If ``table`` does not start with a complete bundle table, return [] and 0.
    """
    targets, end = [], 0
    try:
        if not table.startswith(_BUNDLE):
            return [], 0
        (count,) = _COUNT.unpack_from(table, len(_BUNDLE))
        place = len(_BUNDLE) + _COUNT.size
        for _ in range(min(count, _TABLE_BYTES)):
            offset, size, length = _ENTRY.unpack_from(table, place)
            place += _ENTRY.size
            match = _TARGET.search(table[place : place + length].decode("ascii", "replace"))
            if match:
                targets.append(match.group())
            place += length
            end = max(end, offset + size)
    except struct.error:
        return [], 0
    return targets, end


def _blas(
    tree: Tree, torch: TorchBuild, name: str, libraries: Libraries, override: Optional[str]
) -> dict[str, Fact]:
    library = libraries.chosen.get(f"lib{name}")
    if library is None:
        missing = Fact(None, f"no lib{name} is installed")
        return {f"{name}.path": missing, f"{name}.targets": missing}
    folder = override or _tensile_folder(tree, name, library.path)
    source = f"{name.upper()}_TENSILE_LIBPATH" if override else f"beside lib{name}, {library.source}"
    shown = torch.shown(folder)
    names = tree.names(folder)
    # Newer releases have a subfolder for each target.
    names += [name for below in names if below.startswith("gfx") for name in tree.names(f"{folder}/{below}")]
    targets = tensile_targets(names)
    why_none = f"{shown}: no file is named after a target" if names else f"{shown}: no files"
    return {
        f"{name}.path": Fact(shown, source),
        f"{name}.targets": Fact(targets, f"file names in {shown}") if targets else Fact(None, why_none),
    }


def _tensile_folder(tree: Tree, name: str, library: str) -> str:
    beside = loader.real(tree, library).rpartition("/")[0]
    own = f"{beside}/{name}"
    versions = [f"{own}/{version}/library" for version in reversed(tree.names(own))]
    # In ROCm releases before 5.2, there is no subfolder with the library's name.
    places = [f"{own}/library", *versions, f"{beside}/library"]
    return next((place for place in places if tree.names(place)), places[0])


def tensile_targets(names: Iterable[str]) -> list[str]:
    """Return the targets that rocBLAS or hipBLASLt supports, sorted.

    ``names`` are the file names in the folder where the library keeps its device code.
    """
    # If a target has neither a lazy nor a split file, the library aborts the process even if kernels exist.
    # If there are no lazy files but a merged file, the merged file covers every target that has kernels.
    names = list(names)
    starts = [name for name in names if _LAZY_START.fullmatch(name)]
    if not starts and _MERGED_START not in names:
        starts = [name for name in names if _SPLIT_START.fullmatch(name)]
    matches = [_TENSILE.search(name) for name in starts or names]
    return sorted({match.group(1) for match in matches if match}, key=gpus.target_order)
