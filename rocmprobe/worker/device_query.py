"""Prints what torch says of itself and its devices, as JSON: ``python -m rocmprobe.worker.ask_torch``.

Run in a process of its own, since importing torch or touching a device may crash or hang. A line is
printed after each question, so that what was answered before a crash is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from rocmprobe.process.processes import die_with_parent
from rocmprobe.worker.main import import_torch

#: Properties of a device that some or all versions of torch have; no identifiers.
PROPERTIES = (
    "name", "gcnArchName", "multi_processor_count", "total_memory", "warp_size",
    "pci_domain_id", "pci_bus_id", "pci_device_id",
)  # fmt: skip


def questions() -> dict[str, Callable[[], Any]]:
    """The queries, in this order: those that need no device come first."""
    import torch

    return {
        "version": lambda: torch.__version__,
        "hip": lambda: torch.version.hip,
        "cuda": lambda: torch.version.cuda,
        "library": torch.backends.cudnn.version,
        "arch_list": torch.cuda.get_arch_list,
        "available": torch.cuda.is_available,
        "device_count": torch.cuda.device_count,
        "devices": lambda: [_properties(torch, index) for index in range(torch.cuda.device_count())],
    }


def _properties(torch: Any, index: int) -> dict[str, Any]:
    found = torch.cuda.get_device_properties(index)
    return {name: getattr(found, name) for name in PROPERTIES if hasattr(found, name)}


def answers() -> None:
    """Print a JSON line ``[question, answer, error]`` for each question; an error is a text or null."""
    try:
        import_torch()
    except Exception as error:
        _emit("import", None, f"{type(error).__name__}: {error}")
        return
    for question, ask in questions().items():
        try:
            _emit(question, ask(), None)
        except Exception as error:
            _emit(question, None, f"{type(error).__name__}: {error}")


def _emit(question: str, answer: Any, error: Any) -> None:
    # torch.__version__ is a string of its own kind.
    sys.stdout.write("\n" + json.dumps([question, answer, error], default=str) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    die_with_parent()
    answers()
