"""Reader that detects containers and WSL (Windows Subsystem for Linux).

In WSL, programs reach the GPU through /dev/dxg, Microsoft's DXCore and AMD's librocdxg.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping

from rocmprobe.detect.host.access import DXG
from rocmprobe.detect.stack import loader
from rocmprobe.detect.stack.torch_build import TorchBuild
from rocmprobe.detect.tree import Tree
from rocmprobe.knowledge import wsl
from rocmprobe.model.results import Fact

#: Files that identify a container engine. Kubernetes comes first, because its containers also have the files
#: of the engine that Kubernetes uses.
_MARKS = (
    ("/run/secrets/kubernetes.io", "kubernetes"),
    ("/var/run/secrets/kubernetes.io", "kubernetes"),
    ("/run/.containerenv", "podman"),
    ("/.dockerenv", "docker"),
)
_CGROUPS = ("/proc/self/cgroup", "/proc/1/cgroup")
_CGROUP_KINDS = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"/kubepods", "kubernetes"),
        (r"/libpod-|/podman-", "podman"),
        (r"/docker[/-]", "docker"),
        (r"/lxc[./]", "lxc"),
        (r"/machine\.slice/machine-|\.nspawn", "systemd-nspawn"),
    )
)
#: systemd and most engines write the engine's name to this file (systemd's Container Interface).
_NAMED = "/run/systemd/container"
_WORDS = {"docker", "podman", "lxc", "lxc-libvirt", "systemd-nspawn", "wsl", "oci", "proot", "rkt", "openvz"}
_KERNEL = "/proc/sys/kernel/osrelease"
_LIBROCDXG = "librocdxg.so"
_DXCORE = "/usr/lib/wsl/lib/libdxcore.so"
_DIDS = "share/rocdxg/dids.conf"


def read_facts(tree: Tree, environ: Mapping[str, str]) -> dict[str, Fact]:
    """Return the facts ``container.kind`` and ``container.wsl``.

    - ``container.kind``: "docker", "podman", "kubernetes", "lxc", "systemd-nspawn", another name from
      systemd, or "none"
    - ``container.wsl``: "WSL1", "WSL2" or "no"
    """
    return {"container.kind": _kind(tree, environ), "container.wsl": _wsl(tree)}


def _kind(tree: Tree, environ: Mapping[str, str]) -> Fact:
    if "KUBERNETES_SERVICE_HOST" in environ:
        return Fact("kubernetes", "environment KUBERNETES_SERVICE_HOST")
    for path, kind in _MARKS:
        if tree.exists(path):
            return Fact(kind, path)
    named = tree.text(_NAMED)
    if named in _WORDS - {"wsl"}:
        return Fact(named, _NAMED)
    if environ.get("container") in _WORDS - {"wsl"}:
        return Fact(environ["container"], "environment container")
    for path in _CGROUPS:
        text = tree.text(path) or ""
        for pattern, kind in _CGROUP_KINDS:
            if pattern.search(text):
                return Fact(kind, path)
    return Fact("none", f"no trace in {_NAMED}, {_CGROUPS[0]} and the files of container engines")


def _wsl(tree: Tree) -> Fact:
    release = tree.text(_KERNEL) or ""
    if "microsoft" not in release.lower():
        return Fact("no", f"{_KERNEL} does not name Microsoft")
    # WSL1 has no Linux kernel and no GPU. Its release ends in "-Microsoft".
    if "WSL2" in release or tree.exists(DXG):
        return Fact("WSL2", f"{_KERNEL}; {DXG} {'exists' if tree.exists(DXG) else 'is missing'}")
    return Fact("WSL1" if release.endswith("-Microsoft") else "WSL2", _KERNEL)


def read_wsl(tree: Tree, kind: object, torch: TorchBuild, environ: Mapping[str, str]) -> dict[str, Fact]:
    """Return the facts about WSL.

    - ``wsl.dxg``: True if /dev/dxg exists
    - ``wsl.dxcore``: True if libdxcore.so exists
    - ``wsl.librocdxg``: the paths of all copies of librocdxg.so
    - ``wsl.dids``: PCI id -> target, from the dids.conf file of each copy
    - ``wsl.takes``: the targets that librocdxg supports

    ``kind`` is the value of ``container.wsl``. Outside WSL, return {} if /dev/dxg is missing.
    """
    if kind in (None, "no") and not tree.exists(DXG):
        return {}
    folders = list(dict.fromkeys(_folders(tree, torch, environ)))
    copies = [f"{folder}/{_LIBROCDXG}" for folder in folders if tree.exists(f"{folder}/{_LIBROCDXG}")]
    files = [posixpath.normpath(posixpath.join(posixpath.dirname(path), "..", _DIDS)) for path in copies]
    texts = {name: text for name in dict.fromkeys(files) if (text := tree.text(name))}
    added = {pci: gfx for text in texts.values() for pci, gfx in wsl.entries(text).items()}
    where = ", ".join(torch.shown(name) for name in texts) or f"no {_DIDS}"
    return {
        "wsl.dxg": Fact(tree.exists(DXG), DXG),
        "wsl.dxcore": Fact(tree.exists(_DXCORE), _DXCORE),
        "wsl.librocdxg": Fact(
            [torch.shown(path) for path in copies] or None,
            f"{loader.OPT}/rocm*/lib, LD_LIBRARY_PATH, the loader's folders, the packages next to torch",
        ),
        "wsl.dids": Fact(added or None, where),
        "wsl.takes": Fact(wsl.takes(added.values()), f"data/wsl.toml; {where}")
        if copies
        else Fact(None, _LIBROCDXG),
    }


def _folders(tree: Tree, torch: TorchBuild, environ: Mapping[str, str]) -> Iterable[str]:
    yield from loader.user_folders(environ)
    yield from (f"{folder}/lib" for folder in loader.rocm_folders(tree))
    yield from (folder for folder, _ in loader.system_folders(tree))
    yield "/usr/lib"
    if torch.folder:
        yield f"{torch.folder}/lib"
        yield from loader.sdk_folders(tree, posixpath.dirname(torch.folder))
