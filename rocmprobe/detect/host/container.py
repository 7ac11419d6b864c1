"""Whether this is a container or WSL: there, device nodes, groups and the kernel's log are someone else's."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rocmprobe.detect.host.access import DXG
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact

#: What leaves a file of its own. Kubernetes first: its containers have those of the engine below it, too.
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
#: systemd and most engines name themselves here, in words of the Container Interface of systemd.
_NAMED = "/run/systemd/container"
_WORDS = {"docker", "podman", "lxc", "lxc-libvirt", "systemd-nspawn", "wsl", "oci", "proot", "rkt", "openvz"}
_KERNEL = "/proc/sys/kernel/osrelease"


def read_facts(tree: Tree, environ: Mapping[str, str]) -> dict[str, Fact]:
    """``container.kind``: "docker", "podman", "kubernetes", "lxc", "systemd-nspawn", another word of
    systemd's, or "none"; ``container.wsl``: "WSL1", "WSL2" or "no"."""
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
    # WSL1 is no Linux kernel, and has no GPU; its release ends in "-Microsoft".
    if "WSL2" in release or tree.exists(DXG):
        return Fact("WSL2", f"{_KERNEL}; {DXG} {'exists' if tree.exists(DXG) else 'is missing'}")
    return Fact("WSL1" if release.endswith("-Microsoft") else "WSL2", _KERNEL)
