"""Self-test that runs every kernel of a dtype on integers, and requires exact results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Optional

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry, geometry
from rocmprobe.kernels import exact, gate
from rocmprobe.kernels.families.extents import ITEM_BYTES, Strides
from rocmprobe.kernels.families.family import Family, Option
from rocmprobe.kernels.gate import KernelVerdict
from rocmprobe.kernels.module import KernelDevice, Module
from rocmprobe.kernels.sources import FAMILIES
from rocmprobe.kernels.unavailable import KernelsUnavailable
from rocmprobe.runtimes.calls import CallFailed

#: Number of bytes before and after each tensor that are checked for stray writes.
_MARGIN = 4096
_WORKSPACE = 64 << 20
#: Tensor that a direction writes.
RESULTS = {FWD: "feature", BWD_DATA: "image", BWD_WEIGHTS: "weight"}
#: Initial value of every byte of a result. An element that consists of such bytes is NaN in every dtype.
_UNWRITTEN = 0xFF


def _problem(
    batch: int, channels: int, filters: int, groups: int, image: tuple[int, ...], kernel: tuple[int, ...],
    stride: int = 1, padding: int = 0, dilation: int = 1,
) -> Geometry:  # fmt: skip
    rank = len(image)
    return geometry(
        (batch, channels, *image), (filters, channels // groups, *kernel),
        stride=(stride,) * rank, padding=(padding,) * rank, dilation=(dilation,) * rank, groups=groups,
    )  # fmt: skip


#: Small problems with all special cases: tiles that are only partly filled, padding, phases of a stride with
#: different taps, dilation, three dimensions, numbers of channels that are not a multiple of the vector
#: length, and split sums.
PROBLEMS = (
    _problem(2, 5, 70, 1, (9, 11), (3, 3), padding=1),
    _problem(2, 16, 24, 2, (10, 7), (3, 2), stride=2, padding=1, dilation=2),
    _problem(1, 8, 9, 1, (13, 6), (1, 1)),
    _problem(1, 4, 6, 1, (3, 5, 4), (2, 3, 2), stride=2, padding=1),
    _problem(2, 9, 9, 9, (15, 13), (3, 3), padding=1),
    _problem(1, 8, 16, 8, (12, 11), (5, 3), stride=2, padding=2),
    _problem(2, 8, 12, 4, (7, 9), (3, 3), padding=2, dilation=2),
    _problem(1, 4, 4, 4, (40, 36), (3, 3), padding=1),
    _problem(2, 6, 12, 3, (9, 14), (5, 3), padding=2),
    _problem(1, 5, 5, 5, (11, 9), (4, 5), padding=2),
    _problem(1, 4, 4, 4, (70,), (3,), padding=1),
)


@dataclass(frozen=True)
class SelfTest:
    """Result of a self-test.

    Attributes:
        compile_seconds: seconds of compilation, 0 for cached code.
        cases: number of kernel runs.
        wrong: one line for each run with an incorrect result, a stray write or an error, and for each kernel
            that no problem ran.
        log: registers and LDS of each kernel, and the log of the compiler.
        passed: names of the kernels that ran. If ``wrong`` is empty, all their results were exact.
    """

    compile_seconds: float
    cases: int
    wrong: tuple[str, ...]
    log: str
    passed: tuple[str, ...] = ()


def trial(device: KernelDevice, dtype: str) -> SelfTest:
    """Run the self-test of one dtype, without reading or writing a verdict.

    Raises:
        KernelsUnavailable: if the kernels cannot be compiled or loaded.
    """
    module = Module(device, dtype)
    cases, wrong = 0, []
    chosen: set[str] = set()
    ran: set[str] = set()
    with device.current():
        for plain, (name, family), direction in product(PROBLEMS, FAMILIES.items(), RESULTS):
            for option in family.options(
                direction, plain, dtype, _WORKSPACE, device.compute_units, every=True
            ):
                if not option.kernels <= module.usable:
                    continue
                chosen |= option.kernels
                for last in (False, True):
                    cases += 1
                    fault = _fault(module, family, direction, plain, option, last, ran)
                    if fault:
                        layout = "channels-last" if last else "contiguous"
                        wrong.append(f"{name} {option.variant} {direction} {plain} {layout}: {fault}")
    wrong += [f"{name}: no problem of the self-test runs it" for name in sorted(chosen - ran)]
    kernels = "\n".join(
        each.refusal or f"{each.name}: {each.vgprs} VGPRs, {each.sgprs} SGPRs, {each.lds} bytes of LDS"
        for each in module.kernels.values()
    )
    log = "\n".join(filter(None, (module.compiled.log, kernels)))
    return SelfTest(module.compiled.seconds, cases, tuple(wrong), log, tuple(sorted(ran)))


def identity(device: KernelDevice, dtype: str) -> dict[str, str]:
    """Return the facts on which a verdict depends: chip, effective ISA, runtime, source and dtype."""
    return {**device.identity(), "dtype": dtype}


def run_and_record(device: KernelDevice, dtype: str, folder: Optional[Path]) -> SelfTest:
    """Run the self-test in this process, and write the verdict to ``folder``.

    Raise KernelsUnavailable if the kernels cannot be compiled or loaded.
    """
    about = identity(device, dtype)
    # Record the start first, so that a self-test that freezes the machine does not run again.
    gate.write(folder, about, KernelVerdict("began", process=os.getpid()))
    try:
        found = trial(device, dtype)
    except KernelsUnavailable as unavailable:
        gate.write(folder, about, KernelVerdict("failed", unavailable.reason, unavailable.log))
        raise
    gate.write(folder, about, verdict_of(found))
    return found


def verdict_of(found: SelfTest) -> KernelVerdict:
    if not found.wrong:
        return KernelVerdict("passed", log=found.log, kernels=found.passed)
    count = f"{len(found.wrong)} of {found.cases} results of the self-test are wrong"
    return KernelVerdict("failed", count, "\n".join((*found.wrong, found.log)))


def _fault(
    module: Module, family: Family, direction: str, plain: Geometry, option: Option, last: bool, ran: set[str]
) -> str:
    """Run a kernel and return an error message, or "" if the result is exact.

    If ``last`` is True, tensors are channels-last. Add the names of all launched kernels to ``ran``.
    """
    shapes = exact.shapes(plain)
    layouts = {key: (exact.channels_last if last else exact.contiguous)(each) for key, each in shapes.items()}
    result = RESULTS[direction]
    contents = _contents(direction, plain, module.dtype)
    launches = family.prepare(
        direction, plain, module.dtype, option.variant,
        **{key: Strides.of(each) for key, each in layouts.items()},
        has_bias="bias" in contents, cap=option.workspace_bytes,
    )  # fmt: skip
    if launches is None:
        return "the kernel was chosen for this problem, but cannot run it"
    item = ITEM_BYTES[module.dtype]
    runtime = module.device.runtime
    buffers = {}
    try:
        for key, content in contents.items():
            buffers[key] = runtime.allocate(len(content), _MARGIN)
            if key == result:
                buffers[key].fill(_UNWRITTEN)
            elif key == "bias":
                buffers[key].write(content)
            else:
                buffers[key].write(exact.reorder(content, item, shapes[key], layouts[key]))
        buffers["workspace"] = runtime.allocate(option.workspace_bytes, _MARGIN)
        addresses = {"bias": 0, **{key: buffer.address for key, buffer in buffers.items()}}
        module.launch(launches, addresses)
        module.device.modules.wait()
        ran |= {launch.kernel for launch in launches}
        written = buffers[result].read()
        strayed = [key for key, buffer in buffers.items() if buffer.stray_writes()]
    except (KernelsUnavailable, CallFailed) as failure:
        return f"it fails: {failure}"
    finally:
        # If the device is lost, every call fails, including ``free``.
        with suppress(CallFailed):
            for buffer in buffers.values():
                buffer.free()
    if strayed:
        return f"it writes outside of {', '.join(strayed)}"
    wanted = exact.reorder(contents[result], item, shapes[result], layouts[result])
    places = range(0, len(wanted), item)
    differing = sum(wanted[at : at + item] != written[at : at + item] for at in places)
    return f"{differing} of {len(places)} values differ" if differing else ""


@cache
def _contents(direction: str, plain: Geometry, dtype: str) -> dict[str, bytes]:
    shapes = exact.shapes(plain)
    values: dict[str, Sequence[float]] = {
        key: exact.integers(number, prod(each)) for number, (key, each) in enumerate(shapes.items())
    }
    result = RESULTS[direction]
    bias = None if direction == BWD_WEIGHTS else exact.integers(9, shapes[result][1])
    values[result] = exact.convolved(direction, plain, **values, bias=bias)
    if bias is not None:
        values["bias"] = bias
    return {key: exact.encode(each, dtype) for key, each in values.items()}
