"""Sweep over PyTorch's operators, with the sample inputs of the installed torch's OpInfo database.

Each operator is tested in each dtype, forward and gradient, against fp64 on the CPU. A result is correct if
it is close to the exact result for slightly changed inputs. This criterion is called mixed forward and
backward stability (Higham, Accuracy and Stability of Numerical Algorithms, 1.5). Therefore the reference is
also computed for inputs changed by one unit roundoff. The more an element of the reference changes, the
larger is its error limit.

``rocmprobe repro`` prints the source of some functions. Those functions must follow the rules in
``tools/computation.py``.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any, Callable, Optional

from rocmprobe.checks.check import KERNELS, Check
from rocmprobe.checks.tools.computation import Named, Program, one_thread, seed_of
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import DeviceFailure, NotApplicable
from rocmprobe.model.numerics import LAYER_LIMITS, unit_roundoff
from rocmprobe.model.results import Outcome
from rocmprobe.text.tables import table

DTYPES = ("float32", "float16", "bfloat16")
NAME = "operator"
#: Maximum number of samples per operator, taken evenly from all its samples.
_SAMPLES = 12
#: All operators of one of these namespaces share a process. Of the other operators, those with the same first
#: letter share a process.
_NAMESPACES = ("fft", "linalg", "masked", "nn", "signal", "special")


def group(operator: str) -> str:
    """Return the name of the operator's group. Each group runs in one process."""
    namespace = operator.partition(".")[0]
    return namespace if namespace in _NAMESPACES else operator[0].lower()


def skip_reason(operator: str, dtype: str) -> Optional[str]:
    """Return the reason to skip an operator, or None if the operator is tested."""
    for row in table("operators")["unjudged"]:
        if dtype in row.get("dtypes", DTYPES) and any(fnmatchcase(operator, name) for name in row["names"]):
            return f"{operator}: {row['reason']}"
    return None


def tested_operators(kind: str) -> dict[str, list[str]]:
    """Return the names of the operators to test on the device type ``kind``, keyed by dtype.

    Raise ImportError if the OpInfo database cannot be imported.
    """
    import torch

    found: dict[str, list[str]] = {dtype: [] for dtype in DTYPES}
    for name, operator in database().items():
        if torch.float64 not in operator.supported_dtypes("cpu"):
            continue
        for dtype, names in found.items():
            if getattr(torch, dtype) in operator.supported_dtypes(kind) and not skip_reason(name, dtype):
                names.append(name)
    return found


def database() -> dict[str, Any]:
    """Return PyTorch's OpInfo database, keyed by name and variant (e.g. "nn.functional.pad.constant")."""
    import os
    from unittest import mock

    import torch

    if torch.version.hip:
        os.environ.setdefault("PYTORCH_TEST_WITH_ROCM", "1")
    # After this import, torch would not allow this process to set flags of torch.backends, which settings
    # need.
    with mock.patch.object(torch.backends, "disable_global_flags"):
        from torch.testing._internal.common_methods_invocations import op_db
    return {f"{each.name}.{each.variant_test_name}".rstrip("."): each for each in op_db}


def draw_samples(operator: Any, dtype: Any, kind: str, seed: int) -> list[Any]:
    """Return the operator's sample inputs of at most 2**18 elements, on the CPU.

    ``kind`` is the type of the tested device.
    """
    import torch
    from torch.testing._internal import common_utils
    from torch.utils._pytree import tree_flatten

    # Newer versions of torch seed each sample with this constant.
    common_utils.SEED = seed
    common_utils.set_rng_seed(seed)
    gradients = operator.supports_autograd and dtype in operator.supported_backward_dtypes(kind)
    samples = []
    for each in operator.sample_inputs("cpu", dtype, requires_grad=gradients):
        given = tree_flatten([each.input, each.args, each.kwargs])[0]
        if sum(t.numel() for t in given if isinstance(t, torch.Tensor)) <= 1 << 18:
            samples.append(each)
    return samples


def perturb(sample: Any, roundoff: float, seed: int) -> Any:
    """Return the sample in fp64, with each floating-point number multiplied by a random factor near 1.

    The factor is 1 plus or minus a random number between ``roundoff / 2`` and ``roundoff``.
    """
    import torch

    rng = torch.Generator().manual_seed(seed)

    def change(each: Any) -> Any:
        if isinstance(each, torch.dtype):
            return torch.float64 if each.is_floating_point else each
        if not each.is_floating_point():
            return each.clone()
        ups = torch.rand(each.shape, generator=rng, dtype=torch.float64) * 2 - 1
        new = each.detach().double() * (1 + roundoff * (ups + ups.sign()) / 2)
        return new.requires_grad_(each.requires_grad)

    return sample.transform(change)


def copy_to(sample: Any, device: str) -> Any:
    """Return a copy of the sample on ``device``."""
    import torch

    def change(each: Any) -> Any:
        if isinstance(each, torch.dtype):
            return each
        return each.detach().clone().to(device).requires_grad_(each.requires_grad)

    copy = sample.transform(change)
    copy.kwargs.update({"device": device} if "device" in copy.kwargs else {})
    return copy


def results(operator: Any, sample: Any, dtype: Any) -> Named:
    """Return the operator's outputs and the gradients of its inputs, by name."""
    import torch
    from torch.utils._pytree import tree_flatten

    torch.manual_seed(0)
    given = tree_flatten([sample.input, sample.args, sample.kwargs])[0]
    output = sample.output_process_fn_grad(operator(sample.input, *sample.args, **sample.kwargs))
    outputs = [
        each if isinstance(each, torch.Tensor) else torch.tensor(each, dtype=torch.float64)
        for each in tree_flatten(output)[0]
        if isinstance(each, (torch.Tensor, bool, int, float))
    ]
    leaves, ends = ([t for t in each if getattr(t, "requires_grad", False)] for each in (given, outputs))
    rng = torch.Generator().manual_seed(1)
    drawn = [(torch.rand(t.shape, generator=rng) * 2 - 1).to(dtype).to(t.device, t.dtype) for t in ends]
    found = torch.autograd.grad(ends, leaves, drawn, allow_unused=True) if leaves and ends else ()
    named = {f"output {number}": t.detach() for number, t in enumerate(outputs)}
    return {**named, **{f"gradient {number}": t for number, t in enumerate(found) if t is not None}}


def as_real(tensor: Any) -> Any:
    """Return the tensor in fp64 on the CPU, with complex numbers as pairs of real numbers."""
    import torch

    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj().resolve_neg())
    return tensor.cpu().double()


def error(
    result: Any, reference: Any, others: list[Any], cpu_result: Any, dtype: Any, roundoff: float
) -> float:
    """Return the largest error, relative to the reference's largest value (at least 1).

    ``others`` are the results for inputs changed by one ``roundoff``. The more an element changes in
    ``others``, the larger is its allowed error. ``cpu_result`` is the result in ``dtype`` on the CPU. If an
    element of ``cpu_result`` is not finite, this element is ignored. Return infinity for a wrong shape. Also
    return infinity if an integer is wrong although its expected value is the same in all ``others``.
    """
    import torch

    if result.shape != reference.shape:
        return float("inf") if all(each.shape == reference.shape for each in others) else 0.0
    if reference.layout != torch.strided or any(each.shape != reference.shape for each in others):
        return 0.0
    whole = not (reference.is_floating_point() or reference.is_complex())
    if cpu_result is None or cpu_result.shape != reference.shape:
        cpu_result = reference
    got, want, there, *near = map(as_real, (result, reference, cpu_result, *others))
    change = torch.stack([(each - want).abs() for each in near]).amax(0)
    if whole:
        return float("inf") if bool(((got != want) & (change == 0)).any()) else 0.0
    usable = change.isfinite() & (want.abs() < torch.finfo(dtype).max) & there.isfinite()
    if not bool(usable.any()):
        return 0.0
    got, want, change = got[usable], want[usable], change[usable]
    wrong = torch.nan_to_num((got - want).abs(), nan=float("inf"), posinf=float("inf"))
    return float((wrong / (max(float(want.abs().max()), 1.0) + change / roundoff)).max())


def judge(
    operator: Any, sample: Any, device: str, dtype: Any, roundoff: float, call: Callable[..., Named]
) -> dict[str, float]:
    """Return the error of each result on ``device``, by name.

    ``call(function)`` runs a function that computes on the device, and returns its results.
    """
    expected = results(operator, perturb(sample, 0, 0), dtype)
    changes = [(roundoff, 1), (-roundoff, 1), (roundoff, 2), (-roundoff, 2)]
    others = [results(operator, perturb(sample, *change), dtype) for change in changes]
    try:
        witness = results(operator, copy_to(sample, "cpu"), dtype)
    except RuntimeError:
        # The CPU has no kernel for this operator and dtype.
        witness = expected
    found = call(lambda: results(operator, copy_to(sample, device), dtype))
    if found.keys() != expected.keys():
        return {"number of results": float("inf")}
    return {
        name: error(result, expected[name], [o[name] for o in others], witness.get(name), dtype, roundoff)
        for name, result in found.items()
    }


def is_random(operator: Any, sample: Any) -> bool:
    """Return True if the operator draws random numbers for this sample."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    seeded = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seeded.append(torch.Tag.nondeterministic_seeded in func.tags)
            return func(*args, **(kwargs or {}))

    copy = perturb(sample, 0, 0)
    with Watch():
        operator(copy.input, *copy.args, **copy.kwargs)
    return any(seeded)


def operator(context: CheckContext) -> CheckResult:
    """Test one operator with some of its samples."""
    try:
        tested = database().get(context.operator or "")
    except Exception as error:
        raise NotApplicable(
            "the OpInfo database of torch cannot be imported; it needs the packages expecttest and numpy "
            f"({type(error).__name__}: {error})"
        ) from error
    if context.operator is None:
        raise NotApplicable("the OpInfo database of this torch could not be read when the run began")
    if tested is None:
        raise NotApplicable(f"the OpInfo database of this torch has no operator {context.operator}")
    return _tested(context, tested)


@one_thread()
def _tested(context: CheckContext, tested: Any) -> CheckResult:
    limit, roundoff = LAYER_LIMITS[context.dtype_name], unit_roundoff(context.dtype_name)
    samples = _samples(context, tested)
    seconds: list[float] = []

    def call(function: Callable[[], Named]) -> Named:
        found: Named
        found, took = context.first_call(function)
        seconds.append(took)
        return found

    worst, why = -1.0, "all samples are random"
    answer = CheckResult(numerics={"max_error_limit": limit})
    for number in range(0, len(samples), _step(len(samples))):
        calls = len(seconds)
        try:
            if is_random(tested, samples[number]):
                continue
            errors = judge(tested, samples[number], context.device, context.dtype, roundoff, call)
        except (DeviceFailure, NotApplicable):
            raise
        except Exception as error:
            if len(seconds) > calls:
                raise
            # Some of PyTorch's samples can be computed in one dtype only.
            why = f"no reference in fp64 on the CPU: {type(error).__name__}: {error}"
            continue
        for name, found in errors.items():
            if found > worst:
                worst = found
                answer.numerics.update(max_error=found, sample=number, of=name)
    if not seconds:
        raise NotApplicable(f"{context.operator}: {why.splitlines()[0]}")
    answer.timings["first_call"] = sum(seconds)
    if worst > limit:
        where = f"sample {answer.numerics['sample']}, {answer.numerics['of']}"
        answer.state, answer.message = "wrong", f"{where}: error {worst:.2g}, the limit is {limit:.2g}"
    return answer


def _samples(context: CheckContext, tested: Any) -> list[Any]:
    try:
        return draw_samples(tested, context.dtype, context.backend.device_type, context.seed())
    except Exception as error:
        raise NotApplicable(f"{context.operator}: its samples cannot be drawn: {error}") from error


def _step(count: int) -> int:
    return -(-count // _SAMPLES) or 1


def _script(outcome: Outcome, library: str) -> Program:
    number = outcome.numerics.get("sample")
    chosen = f"samples[{number}:{number + 1}]" if isinstance(number, int) else "samples"
    limit, roundoff = LAYER_LIMITS[outcome.dtype], unit_roundoff(outcome.dtype)
    return Program(
        (database, draw_samples, is_random, judge),
        (
            f"operator, found = database()[{json.dumps(outcome.operator)}], {{}}",
            f'samples = draw_samples(operator, dtype, device.split(":")[0], {seed_of(outcome.dtype)})',
            f"for sample in (each for each in {chosen} if not is_random(operator, each)):",
            f"    found = judge(operator, sample, device, dtype, {roundoff!r}, lambda call: call())",
            "    for name, wrong in found.items():",
            f'        state = "pass" if wrong <= {limit!r} else "wrong"',
            '        print(state, name, f"max_error={wrong:.2g}")',
            '        if state == "wrong": sys.exit(1)',
        ),
    )


CHECKS = (
    Check(
        NAME, "controls", "Is this PyTorch operator correct for PyTorch's samples, with its gradient?",
        operator, KERNELS, last=True, verified=False, seconds=0.1, script=_script,
    ),
)  # fmt: skip
