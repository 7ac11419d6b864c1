"""Convolution, bias and ReLU in one operator, which PyTorch's fusion passes put in place of three."""

from __future__ import annotations

from typing import Any

from rocmprobe.worker.checks.layer import compare, uniform
from rocmprobe.worker.context import CheckContext, CheckResult, NotApplicable

_IMAGE, _FILTERS, _OUTPUT = (2, 4, 8, 8), (6, 4, 3, 3), (2, 6, 8, 8)
_ONE = [1, 1]


def convolution_relu(context: CheckContext) -> CheckResult:
    return _fused(context, [_IMAGE, _FILTERS, _FILTERS[:1]])


def convolution_add_relu(context: CheckContext) -> CheckResult:
    """The same with a second image added before ReLU, as at the end of a residual block."""
    return _fused(context, [_IMAGE, _FILTERS, _FILTERS[:1], _OUTPUT])


def _fused(context: CheckContext, shapes: list[Any]) -> CheckResult:
    """With the vendor library off there is nothing to fuse: then the same work by separate operators."""
    call = _operator(context, len(shapes) > 3) if _library_on(context) else _separate
    return compare(context, uniform(context, shapes), call, reference=_separate)


def _separate(image: Any, filters: Any, bias: Any, summand: Any = None) -> dict[str, Any]:
    import torch
    import torch.nn.functional as F

    with torch.no_grad():
        output = F.conv2d(image, filters, bias, padding=1)
        return {"output": torch.relu(output if summand is None else output + summand)}


def _library_on(context: CheckContext) -> bool:
    import torch

    with context.tested():
        module: Any = torch.backends.mkldnn if context.backend.name == "onednn" else torch.backends.cudnn
        return bool(module.enabled)


def _operator(context: CheckContext, add: bool) -> Any:
    """The library's own operator, as a function of the operands. Raises NotApplicable where there is none."""
    import torch

    library = context.backend.name
    if library != "onednn":
        if context.backend.device_type == "cpu":
            raise NotApplicable("on a simulated machine nothing stands in for this operator of MIOpen's own")
        function = getattr(torch, f"{library}_convolution_{'add_' if add else ''}relu")
        if add:
            return lambda x, w, b, z: {"output": function(x, w, z, 1.0, b, _ONE, _ONE, _ONE, 1)}
        return lambda x, w, b: {"output": function(x, w, b, _ONE, _ONE, _ONE, 1)}
    packet = getattr(torch.ops.mkldnn, "_convolution_pointwise", None)
    if packet is None:
        raise NotApplicable(f"torch {torch.__version__} has no such operator of oneDNN")
    if context.dtype != torch.float32:
        raise NotApplicable(f"whether oneDNN's operator takes {context.dtype_name} depends on the CPU")
    if add:
        return lambda x, w, b, z: {
            "output": packet.binary(x, z, w, b, _ONE, _ONE, _ONE, 1, "add", 1.0, "relu", [], None)
        }
    return lambda x, w, b: {"output": packet(x, w, b, _ONE, _ONE, _ONE, 1, "relu", [], "")}
