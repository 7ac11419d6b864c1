"""Checks of scaled dot product attention with several of PyTorch's backends."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from rocmprobe.checks.check import Check, FailureText, Requires
from rocmprobe.checks.tools.compare import compare
from rocmprobe.checks.tools.computation import Named, layer, leaf, uniform, with_gradients
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import DeviceFailure, NotApplicable

if TYPE_CHECKING:
    from torch import Tensor

#: (samples, heads, steps, size of a head). The number of steps is not a multiple of a kernel's tile, so
#: that the last tile is only partly used. Every fused kernel supports this size of a head.
_QUERIES = (2, 3, 40, 32)
#: Texts of PyTorch's error if no allowed backend can compute attention. Source:
#: aten/src/ATen/native/transformers.
_NONE_LEFT = ("No available kernel", "No viable backend")
#: Words in PyTorch's warnings that explain why a backend is not available.
_REASONS = ("attention", "kernel not used", "architecture")


def attention(context: CheckContext) -> CheckResult:
    """Test attention with the backend that PyTorch chooses."""
    return _attention(context, nullcontext)


def attention_math(context: CheckContext) -> CheckResult:
    """Test the math backend: matrix products and softmax as separate operations."""
    return _attention(context, lambda: _only_backend("MATH"))


def attention_flash(context: CheckContext) -> CheckResult:
    """Test the flash attention backend."""
    return _attention(context, lambda: _only_backend("FLASH_ATTENTION"))


def attention_efficient(context: CheckContext) -> CheckResult:
    """Test the memory-efficient attention backend."""
    return _attention(context, lambda: _only_backend("EFFICIENT_ATTENTION"))


def _attention(context: CheckContext, backend: Callable[[], AbstractContextManager[object]]) -> CheckResult:
    """Compare attention and its gradients to the formula in fp64, with and without a causal mask.

    Raise NotApplicable if attention or the backend is not available.
    """
    import torch.nn.functional as F

    function: Any = getattr(F, "scaled_dot_product_attention", None)
    if function is None:
        import torch

        raise NotApplicable(
            f"torch {torch.__version__} has no scaled_dot_product_attention; 2.0 is the first"
        )

    def call(queries: Tensor, keys: Tensor, values: Tensor, grad: Tensor) -> Named:
        with backend():
            return _both(
                lambda *operands, causal: function(*operands, is_causal=causal), queries, keys, values, grad
            )

    def formula(queries: Tensor, keys: Tensor, values: Tensor, grad: Tensor) -> Named:
        return _both(_by_definition, queries, keys, values, grad)

    draw = partial(uniform, dict.fromkeys(("queries", "keys", "values", "grad"), _QUERIES))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return compare(context, layer(context.dtype_name, draw, call, reference=formula))
        except DeviceFailure as failure:
            text = str(failure.__cause__)
            if not any(words in text for words in _NONE_LEFT):
                raise
            lines = [line for warning in caught for line in str(warning.message).splitlines()]
            reasons = [line.strip() for line in lines if any(word in line for word in _REASONS)]
            why = "; ".join(dict.fromkeys([text.splitlines()[0], *reasons]))
            raise NotApplicable(
                f"this backend is not available for {context.dtype_name} here: {why}"
            ) from failure


def _both(
    function: Callable[..., Tensor], queries: Tensor, keys: Tensor, values: Tensor, grad: Tensor
) -> Named:
    results = {}
    for causal in (False, True):
        leaves = {"queries": leaf(queries), "keys": leaf(keys), "values": leaf(values)}
        output = function(*leaves.values(), causal=causal)
        for what, tensor in with_gradients(output, leaves, grad).items():
            results[f"{'causal' if causal else 'plain'}: {what}"] = tensor
    return results


def _by_definition(queries: Tensor, keys: Tensor, values: Tensor, causal: bool) -> Tensor:
    """Compute attention by the formula in PyTorch's documentation."""
    import torch

    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    return torch.softmax(scores, -1) @ values


@contextmanager
def _only_backend(backend: str) -> Iterator[None]:
    """Restrict attention to ``backend``, a name in ``torch.nn.attention.SDPBackend``."""
    import torch

    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        older: Any = torch.backends.cuda
        flags = {
            "enable_math": backend == "MATH",
            "enable_flash": backend == "FLASH_ATTENTION",
            "enable_mem_efficient": backend == "EFFICIENT_ATTENTION",
        }
        with older.sdp_kernel(**flags):
            yield
        return
    with sdpa_kernel(getattr(SDPBackend, backend)):
        yield


_OTHER_BACKEND = (
    "Switch this backend off: `torch.backends.cuda.enable_{}_sdp(False)`. PyTorch then uses another backend."
)
_attention_check = partial(
    Check,
    rung="primitives",
    requires=Requires(("elementwise", "gemm")),
    seconds=0.05,
)
CHECKS = (
    _attention_check(
        "attention",
        question="Is scaled dot product attention correct with the backend that PyTorch chooses?",
        function=attention,
        explanation=FailureText(
            subject="Scaled dot product attention",
            rung="controls",
            advice="Pin a backend that passed: `with torch.nn.attention.sdpa_kernel(...)`.",
        ),
    ),
    _attention_check(
        "attention-math",
        question="Is attention correct with separate products and a softmax?",
        function=attention_math,
        explanation=FailureText(
            subject="Attention by separate products",
            rung="controls",
            advice="Look at the findings about matrix products and about softmax.",
        ),
    ),
    _attention_check(
        "attention-flash",
        question="Is attention correct with the flash kernel?",
        function=attention_flash,
        explanation=FailureText(
            subject="Flash attention", rung="controls", advice=_OTHER_BACKEND.format("flash")
        ),
    ),
    _attention_check(
        "attention-efficient",
        question="Is attention correct with the memory-efficient kernel?",
        function=attention_efficient,
        explanation=FailureText(
            subject="Memory-efficient attention",
            rung="controls",
            advice=_OTHER_BACKEND.format("mem_efficient"),
        ),
    ),
)
