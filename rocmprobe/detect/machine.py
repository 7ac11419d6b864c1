"""All readers together, each failing alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Callable, Optional, TypeVar

from rocmprobe.detect.gpus import amd, nvidia, pci
from rocmprobe.detect.host import access, container, dmesg, limits, packages, system, windows, wsl
from rocmprobe.detect.programs import tools
from rocmprobe.detect.stack import code_objects, databases, libraries, miopen, rocm, torch_build
from rocmprobe.detect.tree import Tree
from rocmprobe.knowledge import variables
from rocmprobe.model.results import Fact, Gpu, Machine

T = TypeVar("T")


def detect(
    root: Path = Path("/"),
    environ: Optional[Mapping[str, str]] = None,
    python: Optional[torch_build.Python] = None,
) -> Machine:
    """Facts of the machine whose file system is ``root``; no GPU is touched by this process.

    ``environ`` defaults to this process's variables for the own machine and to none for a recorded
    tree, which they are not about. ``python`` is the one whose torch is looked at, this one if None is given.
    Never raises: what a reader could not learn is a fact without a
    value whose source says why, and a reader that broke leaves ``errors.<reader>``.
    GPUs are sorted by PCI address; on Windows itself they are not looked up.
    """
    tree = Tree(Path(root))
    if environ is None:
        environ = os.environ if tree.own else {}
    facts: dict[str, Fact] = {}
    if windows.runs_here(tree):
        return _on_windows(tree, environ)

    def attempt(reader: str, read: Callable[[], T]) -> Optional[T]:
        try:
            return read()
        except Exception as error:
            facts[f"errors.{reader}"] = Fact(f"{type(error).__name__}: {error}", f"reader {reader}")
            return None

    devices = attempt("pci", lambda: pci.read_devices(tree)) or {}
    torch = attempt("torch", lambda: torch_build.read_build(tree, python)) or torch_build.TorchBuild(None, {})
    hip = torch.value("torch.hip")
    found, amd_facts = attempt("amd", lambda: amd.read_gpus(tree, devices, environ, hip)) or ([], {})
    # They work while the files are read, but not while the sensors are: rocminfo wakes every GPU.
    asleep = attempt("suspended", lambda: amd.suspended(tree, devices)) or []
    runs = attempt("tools", lambda: [] if asleep else tools.start(tree, environ)) or []
    found += attempt("nvidia", lambda: nvidia.read_gpus(tree, devices)) or []
    facts.update(amd_facts)
    facts.update(attempt("system", lambda: system.read_facts(tree)) or {})
    facts.update(attempt("limits", lambda: limits.read_facts(tree)) or {})
    facts.update(attempt("access", lambda: access.read_facts(tree)) or {})
    facts.update(attempt("container", lambda: container.read_facts(tree, environ)) or {})
    facts.update(attempt("packages", lambda: packages.read_facts(tree)) or {})
    facts.update(attempt("dmesg", lambda: dmesg.read_facts(tree)) or {})
    facts.update(torch.facts)
    libs = (
        attempt("libraries", lambda: libraries.read_libraries(tree, torch, environ)) or libraries.Libraries()
    )
    facts.update(libs.facts)
    of_wsl = facts.get("container.wsl", Fact()).value
    facts.update(attempt("wsl", lambda: wsl.read_facts(tree, of_wsl, torch, environ)) or {})
    facts.update(attempt("rocm", lambda: rocm.read_facts(tree, torch, libs)) or {})
    release = facts.get("rocm.version", Fact())
    facts.update(attempt("miopen", lambda: miopen.read_facts(tree, torch, libs, release, environ)) or {})
    facts.update(attempt("code", lambda: code_objects.read_facts(tree, torch, libs, environ)) or {})
    gpus = [gpu for _, gpu in found]
    facts.update(attempt("databases", lambda: databases.read_facts(tree, torch, libs, gpus, environ)) or {})
    facts["python.version"] = torch_build.python_version(tree, python)
    facts.update(attempt("tools", lambda: tools.read_facts(tree, runs, asleep)) or {})
    found_set = attempt("variables", lambda: read_variables(environ)) or {}
    facts.update(attempt("labels", lambda: read_labels(found_set, facts)) or {})
    return Machine(
        gpus=tuple(gpu for _, gpu in sorted(found, key=_pci_order)),
        facts=dict(sorted(facts.items())),
        variables=found_set,
    )


def detect_devices(
    environ: Optional[Mapping[str, str]] = None, python: Optional[torch_build.Python] = None
) -> Machine:
    """Of ``detect`` what says which devices torch has: GPUs, torch's build, variables. It starts no program
    and takes a fraction of the time."""
    tree = Tree(Path("/"))
    environ = os.environ if environ is None else environ
    devices = pci.read_devices(tree)
    torch = torch_build.read_build(tree, python)
    found, facts = amd.read_gpus(tree, devices, environ, torch.value("torch.hip"))
    found += nvidia.read_gpus(tree, devices)
    return Machine(
        gpus=tuple(gpu for _, gpu in sorted(found, key=_pci_order)),
        facts={**facts, **torch.facts},
        variables=read_variables(environ),
    )


def _on_windows(tree: Tree, environ: Mapping[str, str]) -> Machine:
    """What Python alone knows: the system, the files of torch, the variables."""
    found_set = read_variables(environ)
    torch = torch_build.read_build(tree)
    facts = {**windows.read_facts(), **torch.facts, "python.version": torch_build.python_version(tree)}
    return Machine(
        facts=dict(sorted({**facts, **read_labels(found_set, facts)}.items())), variables=found_set
    )


def _pci_order(found: tuple[str, Gpu]) -> tuple[int, str]:
    # A domain of more than four digits sorts after those of four.
    return len(found[0]), found[0]


def read_variables(environ: Mapping[str, str]) -> dict[str, Fact]:
    """The variables that matter and are set, by name, sorted.

    Those of the catalogue, and every name that begins or nearly begins as theirs do. A variable whose
    name suggests a secret is left out, whatever it begins with.
    """
    return {name: Fact(environ[name], "environment") for name in sorted(environ) if variables.matters(name)}


def read_labels(found: Mapping[str, Fact], facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """``variables.<NAME>`` for each variable ``found``: its label, under the releases given by ``facts``.

    The words are those of ``rocmprobe.knowledge.variables.LABELS``; the source says why and where that was
    read.
    """
    return variables.label_facts(Machine(facts=facts, variables=found))
