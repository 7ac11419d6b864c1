"""Making a setting hold inside a process: torch flags, vendor library off, bypass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Optional

from rocmprobe.backends import Backend
from rocmprobe.model import Setting
from rocmprobe.worker.ask import NotApplicable

FLAGS = {
    "cudnn.benchmark": ("cudnn", "benchmark"),
    "cudnn.deterministic": ("cudnn", "deterministic"),
    "miopen.immediate": ("miopen", "immediate"),
}


@contextmanager
def _flags(flags: Mapping[str, Any]) -> Iterator[None]:
    """Set flags of ``torch.backends`` and put them back. A flag that this torch lacks is passed over
    if another one of the setting can be set (what selects immediate mode differs by version)."""
    import torch

    before = []
    for name, value in flags.items():
        module_name, attribute = FLAGS[name]
        module = getattr(torch.backends, module_name, None)
        if module is not None and hasattr(module, attribute):
            before.append((module, attribute, getattr(module, attribute)))
            setattr(module, attribute, value)
    try:
        if flags and not before:
            raise NotApplicable(f"torch {torch.__version__} has none of {', '.join(flags)}")
        yield
    finally:
        for module, attribute, value in before:
            setattr(module, attribute, value)


def refuse_before(since: str, library: str, version: Optional[str]) -> None:
    """Raises NotApplicable where ``version`` of ``library`` is known and older than ``since``."""
    if since and version and _numbers(version) < _numbers(since):
        raise NotApplicable(f"{library} {version} does not know this; {since} is the first that does")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


@contextmanager
def _plain_float32() -> Iterator[None]:
    """fp32 means fp32: TF32 would fail the fp32 limits on every recent NVIDIA GPU."""
    import torch

    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def holding(
    setting: Setting, backend: Backend, below: Callable[[], AbstractContextManager[None]]
) -> Callable[[], AbstractContextManager[None]]:
    """A context factory in which ``setting`` holds.

    ``below`` is entered beneath the bypass: what a convolution meets that the bypass does not take.
    """

    @contextmanager
    def context() -> Iterator[None]:
        from rocmprobe import bypass

        if setting.since:
            refuse_before(setting.since, backend.library, backend.library_version())
        with ExitStack() as stack:
            if backend.device_type == "cuda":
                stack.enter_context(_plain_float32())
            stack.enter_context(_flags(setting.torch))
            stack.enter_context(below())
            if not setting.vendor_library:
                stack.enter_context(backend.vendor_library_off())
            if setting.bypass:
                stack.enter_context(bypass.enabled(backend.device_type))
            yield

    return context
