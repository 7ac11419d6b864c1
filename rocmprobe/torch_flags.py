"""Flags of ``torch.backends`` that a setting can change.

This module also runs in programs under ``rocmprobe exec``, so it imports only the standard library.
"""

from __future__ import annotations

from typing import Any

#: Functions of ``torch.backends`` that set a flag, and the functions of the same module that return the flag.
_FUNCTIONS = {
    "cuda.enable_flash_sdp": "flash_sdp_enabled",
    "cuda.enable_mem_efficient_sdp": "mem_efficient_sdp_enabled",
}
FLAGS = ("cudnn.benchmark", "cudnn.deterministic", "miopen.immediate", *_FUNCTIONS)


class MissingFlag(RuntimeError):
    """Raised if a version of torch does not have a flag."""


def set_flag(torch: Any, name: str, value: Any) -> Any:
    """Set a flag and return its previous value.

    Do nothing and return None if this torch has no fused attention for the flag to control (before 2.0).
    Raise MissingFlag if it lacks another flag.
    """
    module_name, _, attribute = name.partition(".")
    module = getattr(torch.backends, module_name, None)
    if not hasattr(module, attribute):
        if name in _FUNCTIONS:
            return None
        raise MissingFlag(f"torch {torch.__version__} has no torch.backends.{name}")
    if name in _FUNCTIONS:
        before = getattr(module, _FUNCTIONS[name])()
        getattr(module, attribute)(value)
        return before
    before = getattr(module, attribute)
    setattr(module, attribute, value)
    return before


def statement(name: str, value: Any) -> str:
    """Return the line of Python that sets a flag."""
    return f"torch.backends.{name}({value})" if name in _FUNCTIONS else f"torch.backends.{name} = {value}"
