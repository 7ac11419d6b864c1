"""The way to the GPU in WSL: /dev/dxg, Microsoft's DXCore, AMD's librocdxg and its list of devices."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from rocmprobe.detect.host.access import DXG
from rocmprobe.detect.stack import loader
from rocmprobe.detect.stack.torch_build import TorchBuild
from rocmprobe.detect.tree import Tree
from rocmprobe.knowledge import wsl
from rocmprobe.model.results import Fact

_NAME = "librocdxg.so"
_DXCORE = "/usr/lib/wsl/lib/libdxcore.so"
_DIDS = "share/rocdxg/dids.conf"
_OPT = "/opt"


def read_facts(tree: Tree, kind: object, torch: TorchBuild, environ: Mapping[str, str]) -> dict[str, Fact]:
    """``wsl.dxg`` and ``wsl.dxcore``: whether they are there; ``wsl.librocdxg``: its copies; ``wsl.dids``:
    PCI id -> target as their dids.conf have them; ``wsl.takes``: the targets that it lists, and those that
    dids.conf adds.

    Empty where this is not WSL (``kind``, of ``container.wsl``) and there is no /dev/dxg.
    """
    if kind in (None, "no") and not tree.exists(DXG):
        return {}
    folders = list(dict.fromkeys(_folders(tree, torch, environ)))
    found = [f"{folder}/{_NAME}" for folder in folders if tree.exists(f"{folder}/{_NAME}")]
    files = [posixpath.normpath(posixpath.join(posixpath.dirname(path), "..", _DIDS)) for path in found]
    texts = {name: text for name in dict.fromkeys(files) if (text := tree.text(name))}
    added = {pci: gfx for text in texts.values() for pci, gfx in wsl.entries(text).items()}
    where = ", ".join(torch.shown(name) for name in texts) or f"no {_DIDS}"
    return {
        "wsl.dxg": Fact(tree.exists(DXG), DXG),
        "wsl.dxcore": Fact(tree.exists(_DXCORE), _DXCORE),
        "wsl.librocdxg": Fact(
            [torch.shown(path) for path in found] or None,
            f"{_OPT}/rocm*/lib, LD_LIBRARY_PATH, the loader's folders, the packages beside torch",
        ),
        "wsl.dids": Fact(added or None, where),
        "wsl.takes": Fact(wsl.takes(added.values()), f"data/wsl.toml; {where}")
        if found
        else Fact(None, _NAME),
    }


def _folders(tree: Tree, torch: TorchBuild, environ: Mapping[str, str]) -> Iterable[str]:
    yield from loader.user_folders(environ)
    for name in tree.names(_OPT):
        if name.startswith("rocm"):
            yield f"{_OPT}/{name}/lib"
    yield from (folder for folder, _ in loader.system_folders(tree))
    yield "/usr/lib"
    if torch.folder:
        around = posixpath.dirname(torch.folder)
        yield f"{torch.folder}/lib"
        yield from (f"{around}/{name}/lib" for name in tree.names(around) if name.startswith("_rocm_sdk_"))
