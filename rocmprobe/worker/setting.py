"""Making a setting hold inside a process: torch flags, vendor library off, bypass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from rocmprobe.backends import Backend
from rocmprobe.knowledge.settings import FLAGS, Versions, meaningless
from rocmprobe.model.results import Setting
from rocmprobe.worker.context import NotApplicable


@contextmanager
def _flags(flags: Mapping[str, Any]) -> Iterator[None]:
    """Set flags of ``torch.backends`` and put them back. Raises NotApplicable where this torch lacks one."""
    import torch

    before = []
    try:
        for name, value in flags.items():
            module_name, attribute = FLAGS[name]
            module = getattr(torch.backends, module_name, None)
            if module is None or not hasattr(module, attribute):
                raise NotApplicable(f"torch {torch.__version__} has no torch.backends.{name}")
            before.append((module, attribute, getattr(module, attribute)))
            setattr(module, attribute, value)
        yield
    finally:
        for module, attribute, value in before:
            setattr(module, attribute, value)


@contextmanager
def _full_precision() -> Iterator[None]:
    """fp32 means fp32, and half precision is summed in it: TF32 would fail the limits on every recent NVIDIA
    GPU, and so would sums in half precision."""
    import torch

    matmul: Any = torch.backends.cuda.matmul
    switches = [
        (torch.backends.cudnn, "allow_tf32"), (matmul, "allow_tf32"),
        (matmul, "allow_fp16_reduced_precision_reduction"),
        (matmul, "allow_bf16_reduced_precision_reduction"),
    ]  # fmt: skip
    before = [(module, name, getattr(module, name)) for module, name in switches if hasattr(module, name)]
    try:
        for module, name, _ in before:
            setattr(module, name, False)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def holding(
    setting: Setting,
    backend: Backend,
    below: Callable[[], AbstractContextManager[None]],
    versions: Versions,
) -> Callable[[], AbstractContextManager[None]]:
    """A context factory in which ``setting`` holds.

    ``below`` is entered beneath the bypass: what a convolution meets that the bypass does not take.
    Entering it raises NotApplicable where the setting means nothing on ``versions``.
    """

    @contextmanager
    def context() -> Iterator[None]:
        from rocmprobe import bypass

        reason = meaningless(setting, versions)
        if reason:
            raise NotApplicable(reason)
        with ExitStack() as stack:
            if backend.device_type == "cuda":
                stack.enter_context(_full_precision())
            stack.enter_context(_flags(setting.torch))
            stack.enter_context(below())
            if not setting.vendor_library:
                stack.enter_context(backend.vendor_library_off())
            if setting.bypass or setting.pytorch_layers:
                convolution = "bypass" if setting.bypass else "native"
                others: Any = dict.fromkeys(setting.pytorch_layers, "pytorch")
                stack.enter_context(bypass.enabled(backend.device_type, convolution=convolution, **others))
            yield

    return context
