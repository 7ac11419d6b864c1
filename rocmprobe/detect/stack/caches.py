"""Reader for the kernel caches of Triton, Inductor and MIOpen.

- Triton: a folder for each kernel, with metadata as JSON (python/triton/compiler/compiler.py)
- Inductor: generated Python code and a Triton cache (torch/_inductor/codecache.py)
- MIOpen: only the names of files are read (``knowledge/miopen_files.py``)
"""

from __future__ import annotations

import getpass
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from rocmprobe.detect.tree import NOT_LOOKED_UP, ReadError, Tree, shown_below_home
from rocmprobe.knowledge.miopen_files import user_file
from rocmprobe.model.facts import CompiledCache, UserFile
from rocmprobe.model.results import Fact
from rocmprobe.text.reading import json_line

#: Largest number of kernels, and of generated code files, that are read. A cache can have tens of thousands.
_MOST = 300
_METADATA_BYTES, _CODE_BYTES, _LLVM_BYTES = 1 << 16, 1 << 16, 1 << 20
_PREFIX = 2
_ISA = re.compile(r"gfx[0-9a-f]{3,4}")
#: The ISA in generated code. Source: torch/_inductor/runtime/hints.py, DeviceProperties.
_OF_DEVICE = re.compile(r"DeviceProperties\(\s*type='hip'[^)]{0,200}?\bcc='(gfx[0-9a-f]{3,4})")
#: Calls of buffer instructions. Source: LLVM docs, AMDGPUUsage, and Triton pull request 4966.
_BUFFER_OPS = re.compile(r"llvm\.amdgcn\.raw\.(?:ptr\.)?buffer\.(?:load|store|atomic)")


@dataclass
class _Kernels:
    count: int = 0
    isas: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    buffer_ops: int = 0
    complete: bool = True

    def as_fact(self, path: str) -> CompiledCache:
        return {
            "path": path,
            "kernels": self.count,
            "isas": dict(sorted(self.isas.items())),
            "versions": dict(sorted(self.versions.items())),
            "buffer_ops": self.buffer_ops,
            "complete": self.complete,
        }


def read_facts(tree: Tree, environ: Mapping[str, str], folders: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return ``caches.triton``, ``caches.inductor`` and ``miopen.user_files``.

    ``folders`` must have the facts ``miopen.user_db`` and ``miopen.kernel_cache``.
    """
    return {
        "caches.triton": _triton(tree, environ),
        "caches.inductor": _inductor(tree, environ),
        "miopen.user_files": _miopen(tree, environ, folders),
    }


def _triton(tree: Tree, environ: Mapping[str, str]) -> Fact:
    home = environ.get("TRITON_HOME") or environ.get("HOME")
    configured = environ.get("TRITON_CACHE_DIR")
    if not configured and not home:
        return Fact(None, NOT_LOOKED_UP)
    path = configured or f"{home}/.triton/cache"
    cache = _Kernels()
    _add_kernels(tree, path, cache)
    if not cache.count:
        return Fact(None, f"no kernels in {shown_below_home(path, environ)}")
    return Fact(cache.as_fact(shown_below_home(path, environ)), "metadata of the kernels")


def _inductor(tree: Tree, environ: Mapping[str, str]) -> Fact:
    path = environ.get("TORCHINDUCTOR_CACHE_DIR")
    shown = shown_below_home(path, environ) if path else ""
    if not path:
        user = _user(tree, environ)
        if user is None:
            return Fact(None, NOT_LOOKED_UP)
        temporary = environ.get("TMPDIR") or "/tmp"  # noqa: S108
        # Source: torch/_inductor/runtime/cache_dir_utils.py, default_cache_dir.
        path = f"{temporary}/torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user)
        shown = f"{shown_below_home(temporary, environ)}/torchinductor_$USER"
    cache = _Kernels()
    for device in tree.names(f"{path}/triton"):
        _add_kernels(tree, f"{path}/triton/{device}", cache)
    read = 0
    for folder in tree.names(path):
        for name in tree.names(f"{path}/{folder}") if len(folder) == 2 else ():
            if not name.endswith(".py"):
                continue
            read += 1
            if read > _MOST:
                cache.complete = False
                break
            code = _start_of(tree, f"{path}/{folder}/{name}", _CODE_BYTES)
            cache.isas.update(set(_OF_DEVICE.findall(code)))
    if not cache.isas:
        return Fact(None, f"no code for an AMD GPU in {shown}")
    return Fact(cache.as_fact(shown), "generated code, and metadata of the kernels in this cache")


def _user(tree: Tree, environ: Mapping[str, str]) -> Optional[str]:
    named = next(filter(None, map(environ.get, ("LOGNAME", "USER", "LNAME", "USERNAME"))), None)
    if named or not tree.own:
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def _add_kernels(tree: Tree, path: str, cache: _Kernels) -> None:
    for folder in tree.names(path):
        names = tree.names(f"{path}/{folder}")
        for name in names:
            if not name.endswith(".json") or name.startswith("__grp__"):
                continue
            if cache.count >= _MOST:
                cache.complete = False
                return
            data = json_line(_start_of(tree, f"{path}/{folder}/{name}", _METADATA_BYTES))
            isa = _isa_of(data) if isinstance(data, dict) else None
            if isa is None:
                continue
            cache.count += 1
            cache.isas[isa] += 1
            if isinstance(data.get("triton_version"), str):
                cache.versions[data["triton_version"][:40]] += 1
            code = f"{name[: -len('.json')]}.llir"
            if code in names and _BUFFER_OPS.search(_start_of(tree, f"{path}/{folder}/{code}", _LLVM_BYTES)):
                cache.buffer_ops += 1


def _isa_of(data: Mapping[str, Any]) -> Optional[str]:
    """Return the ISA in the metadata of a kernel, or None if the kernel is not for an AMD GPU."""
    # ``target`` is an object since Triton 3.0, and a list in older versions.
    target = data.get("target")
    arch = data.get("arch")
    if isinstance(target, dict):
        arch = target.get("arch")
    elif isinstance(target, list) and len(target) > 1:
        arch = target[1]
    # Features can follow the ISA, as in gfx90a:sramecc+:xnack-.
    match = _ISA.match(arch) if isinstance(arch, str) else None
    return match[0] if match else None


def _start_of(tree: Tree, name: str, limit: int) -> str:
    try:
        return tree.read(name, limit)
    except ReadError:
        return ""


def _miopen(tree: Tree, environ: Mapping[str, str], folders: Mapping[str, Fact]) -> Fact:
    files: list[UserFile] = []
    for fact in ("miopen.user_db", "miopen.kernel_cache"):
        place = folders.get(fact, Fact()).value or {}
        shown = str(place.get("path", ""))
        if not place.get("exists"):
            continue
        home = environ.get("HOME", "")
        path = f"{home}{shown[1:]}" if shown.startswith("~/") else shown
        for name in tree.names(path):
            inside = [f"{name}/{inner}" for inner in tree.names(f"{path}/{name}")]
            for relative in [name, *inside]:
                named = user_file(relative)
                if named and len(files) < _MOST:
                    files.append(
                        {
                            "path": f"{shown}/{relative}",
                            "gpu": named.gpu,
                            "isa": named.isa,
                            "version": named.version,
                        }
                    )
    return Fact(files or None, "names of files" if files else "no files of MIOpen in its folders")
