"""Queries HIP's devices: ``python -m rocmprobe.worker.ask_hip HIP [MIOPEN] [ROCBLAS]``, paths of files.

In a process of its own, without torch: loading a library may crash it, and a call may hang. Prints JSON
lines: ``["call", FUNCTION]`` when a call starts, ``[QUESTION, ANSWER, ERROR]`` where one is answered.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from rocmprobe.backends.capi import (
    Call,
    CallFailed,
    Hip,
    LoadFailed,
    MiopenLibrary,
    NotAvailable,
    Rocblas,
    mapped,
)
from rocmprobe.process.processes import die_with_parent


def _emit(*line: Any) -> None:
    # A library may have written half a line before.
    sys.stdout.write("\n" + json.dumps(line) + "\n")
    sys.stdout.flush()


def _observe(call: Call) -> None:
    if call.number is None:
        _emit("call", call.function)


def _ask(question: str, answer: Callable[[], Any]) -> Any:
    try:
        value = answer()
    except (CallFailed, LoadFailed, NotAvailable) as error:
        _emit(question, None, str(error))
        return None
    _emit(question, value, "")
    return value


def _device(hip: Hip, number: int) -> dict[str, Any]:
    hip.set_device(number)
    return {"arch": hip.arch_name(number), "name": hip.device_name(number), "bytes": hip.memory()[1]}


def main(hip_path: str, miopen_path: str = "", rocblas_path: str = "") -> None:
    """Devices first: they decide whether there is anything to test."""
    try:
        hip = Hip(hip_path, _observe)
    except LoadFailed as error:
        _emit("devices", None, str(error))
        return
    count = _ask("count", hip.device_count)
    _ask("devices", lambda: [_device(hip, number) for number in range(count or 0)])
    _ask("hip", hip.runtime_version)
    if rocblas_path:
        _ask("rocblas", lambda: Rocblas(rocblas_path, _observe).version())
    if miopen_path:
        _ask("miopen", lambda: MiopenLibrary(miopen_path, _observe).version())
    _emit("mapped", mapped(), "")


if __name__ == "__main__":
    die_with_parent()
    main(*sys.argv[1:])
