"""The convolutions of ``torch.nn.functional`` by the bypass, whatever is installed.

Arguments, results and errors are those of PyTorch's functions of the same names; so are the backward and
double backward, which are computed by the bypass too. Workspace and algorithm are the defaults of
:func:`rocmprobe.bypass.install` at the first call.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch.nn.functional as F

from rocmprobe.bypass.options import algorithm_or_default, workspace_or_default
from rocmprobe.bypass.scope import ScopedInterceptor, entered

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


@functools.cache
def _layer() -> ScopedInterceptor:
    layer = ScopedInterceptor(workspace_or_default(None), algorithm_or_default(None))
    layer.lay()
    return layer


def _by_bypass(function: Callable[..., Any]) -> Callable[..., Any]:
    def convolve(*arguments: Any, **options: Any) -> Any:
        with entered(_layer()):
            return function(*arguments, **options)

    convolve.__name__ = convolve.__qualname__ = function.__name__
    convolve.__doc__ = f"``torch.nn.functional.{function.__name__}`` by the bypass."
    return convolve


conv1d = _by_bypass(F.conv1d)
conv2d = _by_bypass(F.conv2d)
conv3d = _by_bypass(F.conv3d)
conv_transpose1d = _by_bypass(F.conv_transpose1d)
conv_transpose2d = _by_bypass(F.conv_transpose2d)
conv_transpose3d = _by_bypass(F.conv_transpose3d)
