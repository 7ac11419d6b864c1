"""Checks of operators for selection, sorting, scans, padding, losses and more.

PyTorch computes these operators with its own kernels, or with kernels of hipCUB and rocPRIM.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Callable

from rocmprobe.checks.check import KERNELS, Check
from rocmprobe.checks.controls import with_gradient_of_input
from rocmprobe.checks.tools.compare import compare, compare_each_exactly
from rocmprobe.checks.tools.computation import (
    UNIT,
    Computation,
    Named,
    exact,
    leaf,
    max_error,
    small_integers,
    uniform,
    with_gradients,
)
from rocmprobe.checks.tools.layer_check import layer_check

if TYPE_CHECKING:
    from torch import Tensor

#: Number of elements, so large that a kernel splits the elements into several tiles. In a select, sort or
#: scan, tiles wait for each other, which can fail: hipCUB's DeviceSelect, built for gfx1010, selects wrong
#: elements (https://github.com/jc1122/pytorch-gfx1010).
_MANY = 70_000
#: Number of elements for dropout, and limit for errors. Two calls agree on an element with the probability
#: 0.3^2 + 0.7^2 = 0.58. The measured share has the standard deviation sqrt(0.58 * 0.42 / 2^18) = 0.00096. The
#: limit is about six times as large.
_DROPPED, _DROPOUT_LIMIT = 1 << 18, 6e-3


def selection(values: Tensor) -> Named:
    """Select elements by a condition: nonzero, masked_select, boolean indexing, unique."""
    import torch

    marked = values > 3
    distinct, inverse, counts = torch.unique(values, return_inverse=True, return_counts=True)
    return {
        "nonzero": torch.nonzero(marked),
        "masked_select": torch.masked_select(values, marked),
        "boolean index": values[marked],
        "unique": distinct,
        "unique: inverse": inverse,
        "unique: counts": counts,
        "unique_consecutive": torch.unique_consecutive(values),
    }


def sorting(values: Tensor) -> Named:
    """Apply sort, stable sort, topk and kthvalue."""
    import torch

    ranks = torch.arange(256, device=values.device)
    # Each row is a permutation of 0 to 255, because 5 and 256 have no common factor.
    rows = torch.stack([(ranks * 5 + row * 77) % 256 for row in range(64)]).to(values.dtype)
    ordered, places = torch.sort(rows, dim=1, descending=True)
    largest, where = torch.topk(rows, 10, dim=1)
    stable, order = torch.sort(values, stable=True)
    return {
        "sort: many": stable,
        "sort: places of many": order,
        "sort": ordered,
        "sort: places": places,
        "topk": largest,
        "topk: places": where,
        "kthvalue": torch.kthvalue(rows, 100, dim=1)[0],
    }


def scans(values: Tensor) -> Named:
    """Compute cumulative sums, products and maxima, and differences of neighbours."""
    import torch

    signs = torch.where(values > 0, torch.ones_like(values), -torch.ones_like(values))
    rows = values[: 64 * 512].reshape(64, 512).sign()
    highest, _ = torch.cummax(rows, dim=1)
    return {
        "cumsum of many": torch.cumsum(values.float(), 0),
        "cumsum": torch.cumsum(rows, dim=1),
        "cumsum of columns": torch.cumsum(rows, dim=0),
        "cumprod": torch.cumprod(signs, 0),
        "cummax": highest,
        "diff": torch.diff(values),
    }


def scatter_and_gather(values: Tensor) -> Named:
    """Move and add elements by index."""
    import torch

    places = (torch.arange(len(values), device=values.device) * 37) % 6007
    zeros = torch.zeros(6007, dtype=values.dtype, device=values.device)
    table = values[: 6007 * 8].reshape(6007, 8)
    return {
        "scatter_add": zeros.scatter_add(0, places, values),
        "gather": torch.gather(values, 0, places),
        "index_add": zeros.index_add(0, places, values),
        "index_put": zeros.index_put((places,), values, accumulate=True),
        "index_select": table.index_select(0, places[:3000]),
        "index": table[places[:3000]],
        "scatter": zeros.scatter(0, places[:6007], values[:6007]),
    }


def reductions(values: Tensor) -> Named:
    """Compute extremes and their indices, sums, counts, ``any`` and ``all``."""
    import torch

    ranks = torch.arange(256, device=values.device)
    rows = torch.stack([(ranks * 5 + row * 77) % 256 for row in range(64)]).to(values.dtype)
    small = values[: 64 * 512].reshape(64, 512)
    return {
        "argmax": rows.argmax(1),
        "argmin": rows.argmin(1),
        "argmax of columns": rows[:, :7].argmax(0),
        "amax": small.amax(1),
        "amin": small.amin(0),
        "max of all": values.max(),
        "sum": small.float().sum(1),
        "sum of all": values.float().sum(),
        "count_nonzero": torch.count_nonzero(small, 1),
        "any": (small > 7).any(1),
        "all": (small > -8).all(0),
        "bincount": torch.bincount((values + 8).long(), minlength=17),
    }


def embedding(table: Tensor, grad: Tensor) -> Named:
    """Apply an embedding, compute its gradient, and apply an embedding bag."""
    import torch
    import torch.nn.functional as F

    rows = (torch.arange(len(grad), device=table.device) * 7) % 40
    leaves = {"table": leaf(table)}
    results = with_gradients(F.embedding(rows, leaves["table"]), leaves, grad)
    bags = F.embedding_bag(rows.reshape(-1, 4), table.float(), mode="sum")
    named = {f"embedding: {name}": tensor for name, tensor in results.items()}
    return {**named, "embedding_bag": bags}


def padding(image: Tensor) -> Named:
    """Pad images in every mode, and compute the gradients."""
    import torch.nn.functional as F

    results = {}
    for mode in ("reflect", "replicate", "circular", "constant"):
        leaves = {"input": leaf(image)}
        padded = F.pad(leaves["input"], (2, 1, 3, 2), mode=mode)
        grad = padded.detach().flip(-1).contiguous()
        for name, tensor in with_gradients(padded, leaves, grad).items():
            results[f"{mode}: {name}"] = tensor
    return results


def norms(image: Tensor, weight: Tensor, bias: Tensor, grad: Tensor) -> Named:
    """Apply layer norm and group norm, and compute all gradients."""
    import torch.nn.functional as F

    results = {}
    for kind in ("layer_norm", "group_norm"):
        leaves = {"input": leaf(image), "weight": leaf(weight), "bias": leaf(bias)}
        x, w, b = leaves.values()
        if kind == "layer_norm":
            output = F.layer_norm(x.transpose(1, 3), w.shape, w, b).transpose(1, 3)
        else:
            output = F.group_norm(x, 2, w, b)
        for name, tensor in with_gradients(output, leaves, grad).items():
            results[f"{kind}: {name}"] = tensor
    return results


def resizing(image: Tensor) -> Named:
    """Resize images in the modes nearest, bilinear, bicubic and area, and compute the gradients."""
    import torch.nn.functional as F

    results = {}
    for mode in ("nearest", "bilinear", "bicubic", "area"):
        for size in ((13, 17), (5, 4)):
            functions = {f"{mode} to {size[0]}x{size[1]}": F.interpolate}
            results.update(with_gradient_of_input(image, functions, size=size, mode=mode))
    return results


def grid_sampling(image: Tensor, grid: Tensor, grad: Tensor) -> Named:
    """Sample images at given positions, and compute the gradients of images and positions."""
    import torch.nn.functional as F

    # Use positions whose pixel coordinates are exact in half precision, so that rounding cannot move a
    # position to another pixel.
    leaves = {"input": leaf(image), "grid": leaf((grid * 16).round() * 1.25 / 16)}
    x, places = leaves.values()
    output = F.grid_sample(x, places, padding_mode="border", align_corners=False)
    return {f"grid_sample: {name}": tensor for name, tensor in with_gradients(output, leaves, grad).items()}


def prelu(image: Tensor, slopes: Tensor, grad: Tensor) -> Named:
    """Apply PReLU with a slope for each channel, and compute the gradients."""
    import torch.nn.functional as F

    leaves = {"input": leaf(image), "slopes": leaf(slopes)}
    output = F.prelu(*leaves.values())
    return {f"prelu: {name}": tensor for name, tensor in with_gradients(output, leaves, grad).items()}


def global_pooling(image: Tensor) -> Named:
    """Apply adaptive average and max pooling, and compute the gradients."""
    import torch.nn.functional as F

    functions: Any = {
        "adaptive_avg_pool2d": F.adaptive_avg_pool2d,
        "adaptive_max_pool2d": F.adaptive_max_pool2d,
    }
    whole = with_gradient_of_input(image, functions, output_size=1)
    uneven = {f"{name} to 4x3": function for name, function in functions.items()}
    return {**whole, **with_gradient_of_input(image, uneven, output_size=(4, 3))}


def losses(scores: Tensor) -> Named:
    """Compute cross entropy, binary cross entropy, MSE and smooth L1 loss, with gradients."""
    import torch
    import torch.nn.functional as F

    count, classes = scores.shape[:2]
    labels = (torch.arange(count, device=scores.device) * 3) % classes
    pixels = (torch.arange(count * 6, device=scores.device) % classes).reshape(count, 2, 3)
    weights = torch.linspace(0.5, 1.5, classes, device=scores.device, dtype=scores.dtype)
    other = scores.flip(0)
    results = {}
    x = leaf(scores)
    for name, loss in {
        "cross_entropy": F.cross_entropy(x, labels),
        "cross_entropy with weights": F.cross_entropy(x, labels, weights, ignore_index=0),
        "cross_entropy with smoothing": F.cross_entropy(x, labels, label_smoothing=0.1),
        "cross_entropy of images": F.cross_entropy(x[:, :, None, None].expand(-1, -1, 2, 3), pixels),
        "binary_cross_entropy": F.binary_cross_entropy_with_logits(x, (other > 0).to(x.dtype)),
        "mse_loss": F.mse_loss(x, other),
        "smooth_l1_loss": F.smooth_l1_loss(x, other),
    }.items():
        results[f"{name}: output"] = loss.detach().reshape(1)
        results[f"{name}: gradient of input"] = torch.autograd.grad(loss, x, retain_graph=True)[0]
    return results


def dropout(ones: Tensor) -> Named:
    """Apply dropout with probability 0.3 twice, and return statistics of dropped and kept elements."""
    import torch
    import torch.nn.functional as F

    x = leaf(ones)
    first, second = F.dropout(x, 0.3), F.dropout(ones, 0.3)
    (gradient,) = torch.autograd.grad(first, x, ones)
    dropped, again, first = first == 0, second == 0, first.detach()
    return {
        "share dropped": dropped.float().mean().reshape(1),
        "share of elements dropped in both calls or in neither": (dropped == again).float().mean().reshape(1),
        "share of gradients that differ from the output": (gradient != first).float().mean().reshape(1),
        "largest": first.max().reshape(1),
        "smallest kept element": (first + 9 * dropped).min().reshape(1),
    }


def dropout_expected(ones: Tensor) -> Named:
    """Return the expected values of ``dropout``."""
    shares = {
        "share dropped": 0.3,
        "share of elements dropped in both calls or in neither": 0.3**2 + 0.7**2,
        "share of gradients that differ from the output": 0.0,
        "largest": 1 / 0.7,
        "smallest kept element": 1 / 0.7,
    }
    return {name: ones[:1] * share for name, share in shares.items()}


def _exactly(name: str, question: str, draw: partial[Named], call: Callable[..., Named]) -> Check:
    computation = exact(draw, call)
    return Check(
        name=name,
        rung="controls",
        question=question,
        function=lambda context: compare_each_exactly(context, computation),
        requires=KERNELS,
    )


_DROPOUT = Computation(
    partial(uniform, {"ones": (_DROPPED,)}, least=1, width=0),
    dropout,
    (partial(max_error, least=UNIT),),
    {"": {"max_error": _DROPOUT_LIMIT}},
    dropout_expected,
)
_many = partial(small_integers, {"values": (_MANY,)})
_operator_check = partial(layer_check, rung="controls", requires=KERNELS)
CHECKS = (
    _exactly(
        "selection",
        "Do nonzero, masked_select, boolean indexing and unique select the correct elements?",
        _many,
        selection,
    ),
    _exactly("sorting", "Are sort, topk and kthvalue correct?", _many, sorting),
    _exactly("scans", "Are cumsum, cumprod and cummax exact?", _many, scans),
    _exactly(
        "scatter-and-gather",
        "Are scatter_add, index_add, index_put and gather exact?",
        _many,
        scatter_and_gather,
    ),
    _exactly("reductions", "Are argmax, amax, sums and counts exact?", _many, reductions),
    _exactly(
        "embedding",
        "Are embedding and its gradient exact, also for rows that occur often?",
        partial(small_integers, {"table": (40, 16), "grad": (400, 16)}),
        embedding,
    ),
    _exactly(
        "padding",
        "Is padding exact in every mode, with its gradient?",
        partial(small_integers, {"image": (2, 3, 7, 8)}),
        padding,
    ),
    _operator_check(
        "norms",
        question="Are layer norm and group norm correct, with their gradients?",
        draw=partial(
            uniform,
            {"image": (4, 24, 5, 6), "weight": (24,), "bias": (24,), "grad": (4, 24, 5, 6)},
        ),
        call=norms,
    ),
    _operator_check(
        "resizing",
        question="Is resizing of images correct, with its gradient?",
        draw=partial(uniform, {"image": (2, 3, 8, 9)}),
        call=resizing,
    ),
    _operator_check(
        "grid-sampling",
        question="Is grid_sample correct, with its gradients?",
        draw=partial(uniform, {"image": (2, 3, 8, 16), "grid": (2, 6, 7, 2), "grad": (2, 3, 6, 7)}),
        call=grid_sampling,
    ),
    _operator_check(
        "prelu",
        question="Is PReLU correct, with the gradient of its slopes?",
        draw=partial(uniform, {"image": (4, 6, 9, 8), "slopes": (6,), "grad": (4, 6, 9, 8)}),
        call=prelu,
    ),
    _operator_check(
        "global-pooling",
        question="Is pooling of whole images correct, with its gradient?",
        draw=partial(uniform, {"image": (3, 5, 14, 15)}),
        call=global_pooling,
    ),
    _operator_check(
        "losses",
        question="Are cross entropy and other losses correct, with their gradients?",
        draw=partial(uniform, {"scores": (48, 12)}, least=-3, width=6),
        call=losses,
    ),
    Check(
        name="dropout",
        rung="controls",
        question="Does dropout drop the requested share, and different elements in each call?",
        function=lambda context: compare(context, _DROPOUT),
        requires=KERNELS,
    ),
)
