"""The copies of ROCm's libraries on a machine, and the copies that the dynamic loader uses."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rocmprobe.detect.stack import elf, loader
from rocmprobe.detect.stack.torch_build import TorchBuild
from rocmprobe.detect.tree import ReadError, Tree
from rocmprobe.model.results import Fact

#: Library folders below a ROCm folder. Before ROCm 5.2, each component had a separate folder.
_BELOW_ROCM = ("lib", "lib64", "hip/lib", "miopen/lib", "rocblas/lib")


@dataclass(frozen=True)
class Library:
    """A library file. ``source`` is the rule by which the loader finds the file."""

    path: str
    source: str


@dataclass(frozen=True)
class Libraries:
    """The ROCm libraries that the loader uses, and the facts of ``read_libraries``.

    ``chosen`` maps a name, e.g. "libMIOpen", to the library that torch loads, else to the library that other
    programs load.
    """

    chosen: Mapping[str, Library] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)


def read_libraries(tree: Tree, torch: TorchBuild, environ: Mapping[str, str]) -> Libraries:
    """Return the ROCm libraries on a machine, and the copies that the loader uses.

    - ``rocm.libraries``: for each name, the paths of all copies outside of torch
    - ``rocm.loader``: the copies that a program without bundled libraries loads
    - ``torch.loader``: the copies that torch loads
    """
    system = loader.system_folders(tree)
    user = [(folder, "LD_LIBRARY_PATH") for folder in loader.user_folders(environ)]
    plain = _first_copies(tree, [*user, *system])
    by_torch = _for_torch(tree, torch, user, system)
    below_opt = [f"{folder}/{below}" for folder in loader.rocm_folders(tree) for below in _BELOW_ROCM]
    folders = [*loader.user_folders(environ), *below_opt, *(folder for folder, _ in system)]
    everywhere = _all_copies(tree, folders)
    facts = {
        "rocm.libraries": Fact(everywhere or None, f"{loader.OPT}/rocm*, LD_LIBRARY_PATH, {loader.CACHE}"),
        "rocm.loader": _fact(plain, torch, "no library of ROCm where the loader looks"),
        "torch.loader": _fact(by_torch, torch, torch.why_not_rocm()),
    }
    return Libraries({**plain, **by_torch}, facts)


def _fact(libraries: Mapping[str, Library], torch: TorchBuild, why_none: str) -> Fact:
    sources = sorted({library.source for library in libraries.values()})
    paths = {name: torch.shown(library.path) for name, library in sorted(libraries.items())}
    return Fact(paths or None, ", ".join(sources) if paths else why_none)


def _all_copies(tree: Tree, folders: list[str]) -> dict[str, list[str]]:
    copies: dict[str, dict[str, None]] = {}
    for folder in folders:
        for name, path in loader.copies(tree, folder).items():
            copies.setdefault(name, {})[loader.real(tree, path)] = None
    return {name: list(paths) for name, paths in sorted(copies.items())}


def _first_copies(tree: Tree, folders: list[tuple[str, str]]) -> dict[str, Library]:
    libraries: dict[str, Library] = {}
    for folder, source in folders:
        for name, path in loader.copies(tree, folder).items():
            libraries.setdefault(name, Library(loader.real(tree, path), source))
    return libraries


def _for_torch(
    tree: Tree, torch: TorchBuild, user: list[tuple[str, str]], system: list[tuple[str, str]]
) -> dict[str, Library]:
    """Return the file that the loader finds for each ROCm library that torch needs or bundles."""
    if not torch.for_rocm:
        return {}
    links = _links(tree, torch)
    rpath = _places(links.rpath, torch, "RPATH of libtorch_hip.so")
    runpath = _places(links.runpath, torch, "RUNPATH of libtorch_hip.so")
    # Search the folders in the loader's order. If a library has a RUNPATH, the loader ignores the RPATH.
    order = [*([] if runpath else rpath), *user, *runpath, *system]
    libraries: dict[str, Library] = {}
    for asked in [*links.needed, *(path.rpartition("/")[2] for path in torch.bundled.values())]:
        name = loader.library_of(asked)
        if not name or name in libraries:
            continue
        if torch.preloads and name in torch.bundled:
            libraries[name] = Library(torch.bundled[name], "preloaded by torch")
            continue
        for folder, source in order:
            if tree.exists(f"{folder}/{asked}"):
                libraries[name] = Library(posixpath.normpath(f"{folder}/{asked}"), source)
                break
    return libraries


def _places(folders: tuple[str, ...], torch: TorchBuild, source: str) -> list[tuple[str, str]]:
    origin = f"{torch.folder}/lib"
    return [(re.sub(r"\$(?:ORIGIN|\{ORIGIN\})", lambda _: origin, folder), source) for folder in folders]


def _links(tree: Tree, torch: TorchBuild) -> elf.Links:
    try:
        with tree.opened(f"{torch.folder}/lib/libtorch_hip.so") as handle:
            return elf.read_links(handle)
    except ReadError:
        return elf.Links(runpath=("$ORIGIN",))
