"""Code of ``rocmprobe exec`` and ``rocmprobe shapes`` that runs in a program after the import of torch.

From rocmprobe, the code imports only the bypass and ``torch_flags``, because the program's Python can lack
every package except torch.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rocmprobe.torch_flags import set_flag

_prepared = False
_KEPT = ("registration", "dispatch", "autograd", "calls", "counts", "other_layers")


def prepare(torch: Any) -> None:
    """Apply the configuration to this process. After a reload of torch, call this function again.

    Raises an exception if a part of the configuration cannot be applied.
    """
    global _prepared  # noqa: PLW0603 - a process is prepared once
    conditions = json.loads(os.environ.get("ROCMPROBE_EXEC") or "{}")
    _check_version(torch, conditions.get("torch", ""))
    for name, value in conditions.get("flags", {}).items():
        set_flag(torch, name, value)
    for device_type in conditions.get("vendor_off", ()):
        # On ROCm, ``cudnn.enabled`` switches MIOpen on and off.
        library = torch.backends.cudnn if device_type == "cuda" else torch.backends.mkldnn
        library.enabled = False
    devices, layers = conditions.get("bypass", ()), conditions.get("pytorch_layers", {})
    if devices or layers:
        _install_bypass(devices, layers)
    if _prepared:
        return
    _prepared = True
    path = os.environ.get("ROCMPROBE_BYPASS_STATUS")
    served = devices or next(iter(layers.values()), ())
    if served and path:
        from rocmprobe.exec.inject.status import write_at_end

        write_at_end(path, served)
    folder = os.environ.get("ROCMPROBE_RECORD")
    if folder:
        from rocmprobe.exec.inject.recorder import install

        install(folder)
    if devices or folder:
        from rocmprobe.exec.inject.fusions import switch_off

        switch_off(devices or ("cpu", "cuda"))


def _check_version(torch: Any, checked: str) -> None:
    """Raise RuntimeError if MAJOR.MINOR of ``torch`` and of ``checked`` differ."""
    if checked and _release(checked) != _release(torch.__version__):
        raise RuntimeError(
            f"the setting's flags were tested with torch {checked}, and can differ in "
            f"torch {torch.__version__}; run `rocmprobe run` with this torch"
        )


def _release(version: str) -> list[str]:
    return str(version).split("+", maxsplit=1)[0].split(".")[:2]


def _install_bypass(devices: Sequence[str], layers: Mapping[str, Sequence[str]]) -> None:
    # A reload of torch creates new dtype objects, so modules that use dtypes must be imported again. Keep
    # only the modules of ``_KEPT``, because they hold the registration and the counts of this process.
    for name in [each for each in sys.modules if _prepared and each.startswith("rocmprobe.bypass")]:
        if name.rpartition(".")[2] not in _KEPT:
            del sys.modules[name]
    bypass = importlib.import_module("rocmprobe.bypass")
    for device_type in dict.fromkeys([*devices, *(each for served in layers.values() for each in served)]):
        others = {option: "pytorch" for option, served in layers.items() if device_type in served}
        convolution = "bypass" if device_type in devices else "native"
        bypass.install(device_type, convolution=convolution, **others)
