"""Program that queries torch for versions and devices, because a query can crash or hang.

After each query, ``python -m rocmprobe.worker.device_query`` prints the JSON line ``[name, value, error]``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Union

from rocmprobe.lifetime import die_with_parent
from rocmprobe.worker.main import import_torch

#: Properties of a device in some or all versions of torch, without properties that identify an owner's
#: device, e.g. its UUID.
PROPERTIES = (
    "name", "gcnArchName", "multi_processor_count", "total_memory", "warp_size",
    "pci_domain_id", "pci_bus_id", "pci_device_id",
)  # fmt: skip
#: Switches of ``torch.backends`` that choose a library or its kernels. No version of torch has all of them.
#: Source: torch/backends/ of torch 1.13 to 2.13; hipdnn: https://github.com/ROCm/pytorch/pull/3047.
SWITCHES = (
    "cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic", "miopen.immediate", "hipdnn.enabled",
    "cuda.preferred_blas_library", "cuda.preferred_linalg_library", "cuda.preferred_rocm_fa_library",
    "cuda.flash_sdp_enabled", "cuda.mem_efficient_sdp_enabled", "cuda.math_sdp_enabled",
)  # fmt: skip


def query_torch() -> None:
    """Print a line with name, value and error for each query of torch."""
    try:
        import_torch()
    except Exception as error:
        _emit("import", None, f"{type(error).__name__}: {error}")
        return
    for question, answer in _torch_questions().items():
        try:
            _emit(question, answer(), None)
        except Exception as error:
            _emit(question, None, f"{type(error).__name__}: {error}")


def _torch_questions() -> dict[str, Callable[[], object]]:
    import torch

    return {
        "version": lambda: torch.__version__,
        "hip": lambda: torch.version.hip,
        "cuda": lambda: torch.version.cuda,
        "library": torch.backends.cudnn.version,
        "arch_list": torch.cuda.get_arch_list,
        "available": torch.cuda.is_available,
        "device_count": torch.cuda.device_count,
        "devices": lambda: list(
            map(_properties, map(torch.cuda.get_device_properties, range(torch.cuda.device_count())))
        ),
        "switches": lambda: _switches(torch.backends),
    }


def _switches(backends: object) -> dict[str, Union[bool, str]]:
    values: dict[str, Union[bool, str]] = {}
    for name in SWITCHES:
        module, attribute = name.split(".")
        value = getattr(getattr(backends, module, None), attribute, None)
        try:
            value = value() if callable(value) else value
        except (RuntimeError, AttributeError):  # This build lacks the library of the switch.
            continue
        if value is not None:
            values[name] = value if isinstance(value, bool) else str(value).rpartition(".")[2].lower()
    return values


def _properties(device: object) -> dict[str, object]:
    return {name: getattr(device, name) for name in PROPERTIES if hasattr(device, name)}


def _emit(*line: object) -> None:
    # Begin a new line, because a library may have written half a line before. default=str is for
    # torch.__version__, which is a subclass of str.
    sys.stdout.write("\n" + json.dumps(line, default=str) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    die_with_parent()
    query_torch()
