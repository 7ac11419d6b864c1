"""Compilers that torch uses at run time: Triton and Inductor."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rocmprobe.checks.tools.failures import NotApplicable

if TYPE_CHECKING:
    from torch import Tensor, nn

#: Messages for missing tools (e.g. a C compiler), keyed by a part of the message from Triton or Inductor.
_NOTHING_TO_COMPILE_WITH = {
    "No working C++ compiler": "there is no working C++ compiler, which Inductor needs on a CPU",
    "InvalidCxxCompiler": "there is no working C++ compiler, which Inductor needs on a CPU",
    "working triton installation": "there is no working Triton, which Inductor needs on a GPU",
    "TritonMissing": "there is no Triton, which Inductor needs on a GPU",
    "Inductor is not available": "this torch has no Inductor for the device",
    "not supported on Python": "this torch cannot compile on this version of Python",
    "Windows not yet supported": "this torch cannot compile on Windows",
    "Failed to find C compiler": "there is no C compiler, which Triton needs to launch a kernel",
}


class Compiler:
    """The compilers of this torch. A simulated machine uses a subclass that compiles nothing."""

    def launch(self, source: Tensor, target: Tensor) -> None:
        """Launch a Triton kernel that writes ``2 * source + 1`` to ``target``.

        Raise NotApplicable on a CPU, or if Triton or its C compiler is missing.
        """
        if source.device.type == "cpu":
            raise NotApplicable("Triton compiles for GPUs, but this test runs on a CPU")
        if importlib.util.find_spec("triton") is None:
            raise NotApplicable("this Python has no Triton")
        import torch

        from rocmprobe.checks.tools.triton_kernel import launch

        with _tools_missing(), torch.cuda.device(source.device):
            launch(source, target)

    def compiled(self, net: nn.Module) -> nn.Module:
        """Return ``net`` under ``torch.compile``, which compiles during the first calls.

        Make the first calls inside of ``compiling``.
        """
        import torch

        compile_: Any = getattr(torch, "compile", None)
        if compile_ is None:
            raise NotApplicable(f"torch {torch.__version__} has no torch.compile; 2.0 is the first")
        compiled: nn.Module = compile_(net, backend="inductor", dynamic=False)
        return compiled

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Make Inductor compile in this process, without helper processes.

        Raise NotApplicable if Inductor cannot compile, e.g. without a C++ compiler.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(ImportError):
                from torch._inductor import config

                # With more threads, Inductor starts helper processes, which could outlive this process.
                stack.enter_context(config.patch(compile_threads=1))  # type: ignore[attr-defined,unused-ignore]
            stack.enter_context(_tools_missing())
            yield


@contextmanager
def _tools_missing() -> Iterator[None]:
    try:
        yield
    except NotApplicable:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        why = next((why for said, why in _NOTHING_TO_COMPILE_WITH.items() if said in text), None)
        if why is None:
            raise
        raise NotApplicable(why) from error
