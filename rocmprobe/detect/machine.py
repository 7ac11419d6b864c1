"""Functions that run all readers of facts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Callable, Optional, TypeVar

from rocmprobe.detect.gpus import amd, pci
from rocmprobe.detect.host import access, container, dmesg, packages, system
from rocmprobe.detect.stack import caches, code_objects, databases, libraries, rocm, torch_build
from rocmprobe.detect.tree import Tree
from rocmprobe.knowledge import variables
from rocmprobe.model.results import Fact, Gpu, Machine

T = TypeVar("T")


def detect(root: Path = Path("/"), environ: Optional[Mapping[str, str]] = None) -> Machine:
    """Return the facts about the machine whose file system is ``root``. Never raise an exception.

    This process opens no GPU. ``environ`` defaults to this process's environment, or to {} for a recorded
    tree.

    If a reader fails, the fact ``errors.<reader>`` has the error. On Windows, GPUs are not detected.
    """
    tree = Tree(Path(root))
    if environ is None:
        environ = os.environ if tree.own else {}
    facts: dict[str, Fact] = {}
    if system.is_windows(tree):
        return _on_windows(tree, environ)

    def attempt(reader: str, read: Callable[[], T]) -> Optional[T]:
        try:
            return read()
        except Exception as error:
            facts[f"errors.{reader}"] = Fact(f"{type(error).__name__}: {error}", f"reader {reader}")
            return None

    def learn(reader: str, read: Callable[[], Mapping[str, Fact]]) -> None:
        facts.update(attempt(reader, read) or {})

    devices = attempt("pci", lambda: pci.read_devices(tree)) or {}
    torch = attempt("torch", lambda: torch_build.read_build(tree)) or torch_build.TorchBuild(None, {})
    hip = torch.value("torch.hip")
    gpus, amd_facts = attempt("amd", lambda: amd.read_gpus(tree, devices, environ, hip)) or ([], {})
    gpus.sort(key=_pci_order)
    facts.update(amd_facts)
    learn("system", lambda: system.read_facts(tree))
    learn("limits", lambda: system.read_limits(tree))
    learn("access", lambda: access.read_facts(tree))
    learn("container", lambda: container.read_facts(tree, environ))
    learn("packages", lambda: packages.read_facts(tree))
    learn("dmesg", lambda: dmesg.read_facts(tree))
    facts.update(torch.facts)
    libs = (
        attempt("libraries", lambda: libraries.read_libraries(tree, torch, environ)) or libraries.Libraries()
    )
    facts.update(libs.facts)
    of_wsl = facts.get("container.wsl", Fact()).value
    learn("wsl", lambda: container.read_wsl(tree, of_wsl, torch, environ))
    learn("rocm", lambda: rocm.read_facts(tree, torch, libs))
    release = facts.get("rocm.version", Fact())
    learn("miopen", lambda: rocm.read_miopen(tree, torch, libs, release, environ))
    learn("code", lambda: code_objects.read_facts(tree, torch, libs, environ))
    learn("databases", lambda: databases.read_facts(tree, torch, libs, gpus, environ))
    learn("caches", lambda: caches.read_facts(tree, environ, facts))
    facts["python.version"] = torch_build.python_version(tree)
    environment = attempt("variables", lambda: read_variables(environ)) or {}
    learn("labels", lambda: variables.label_facts(Machine(facts=facts, variables=environment)))
    return Machine(gpus=tuple(gpus), facts=dict(sorted(facts.items())), variables=environment)


def detect_devices(environ: Optional[Mapping[str, str]] = None) -> Machine:
    """Return the GPUs, torch's build and the environment variables."""
    tree = Tree(Path("/"))
    environ = os.environ if environ is None else environ
    devices = pci.read_devices(tree)
    torch = torch_build.read_build(tree)
    gpus, facts = amd.read_gpus(tree, devices, environ, torch.value("torch.hip"))
    return Machine(
        gpus=tuple(sorted(gpus, key=_pci_order)),
        facts={**facts, **torch.facts},
        variables=read_variables(environ),
    )


def _on_windows(tree: Tree, environ: Mapping[str, str]) -> Machine:
    environment = read_variables(environ)
    torch = torch_build.read_build(tree)
    facts = {**system.read_windows(), **torch.facts, "python.version": torch_build.python_version(tree)}
    facts.update(variables.label_facts(Machine(facts=facts, variables=environment)))
    return Machine(facts=dict(sorted(facts.items())), variables=environment)


def _pci_order(gpu: Gpu) -> tuple[int, str]:
    return pci.address_order(str(gpu.address.value))


def read_variables(environ: Mapping[str, str]) -> dict[str, Fact]:
    """Return the environment variables of ROCm and PyTorch that are set, sorted by name.

    Misspelled names are included. Names that suggest a secret are left out.
    """
    return {name: Fact(environ[name], "environment") for name in sorted(environ) if variables.matters(name)}
