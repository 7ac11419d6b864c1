"""What Python alone knows of Windows: there is no KFD, no sysfs and no loader's cache to read, and GPUs are
not looked up."""

from __future__ import annotations

import os
import platform
import sys

from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact


def runs_here(tree: Tree) -> bool:
    """Whether the machine to look at is this one, and runs Windows."""
    return tree.own and sys.platform == "win32"


def read_facts() -> dict[str, Fact]:
    """``os.*``, ``kernel.release``, ``cpu.name``, ``cpu.threads``, and what is not looked up."""
    release = platform.release()
    not_here = Fact(None, "Windows: there is no compute driver of this kind, and GPUs are not looked up")
    return {
        "os.name": Fact(f"Windows {release}".strip(), "Python's platform"),
        "os.id": Fact("windows", "Python's sys.platform"),
        "os.version": Fact(release or None, "Python's platform.release"),
        "kernel.release": Fact(platform.version() or None, "Python's platform.version"),
        "cpu.name": Fact(platform.processor() or None, "Python's platform.processor"),
        "cpu.threads": Fact(os.cpu_count(), "Python's os.cpu_count"),
        "amd.cards": not_here,
        "kfd.device": not_here,
    }
