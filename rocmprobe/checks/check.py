"""What a check declares: its question, its needs, the function that answers, and the words of its finding.

The suites say under which settings and in which dtypes it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Optional, Union

from rocmprobe.checks.tools.compare import compare
from rocmprobe.checks.tools.computation import UNIT, Computation, Named, Program, layer
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.model.numerics import LAYER_LIMITS
from rocmprobe.model.results import Outcome


@dataclass(frozen=True)
class Requires:
    """What a check depends on: where one of these fails, it is blocked.

    ``below``: checks in its own dtype under ``default``; ``outside``: such checks, where its setting keeps
    convolution out of the vendor library; ``beside``: checks in its own dtype under ``default``,
    ``vendor-off`` or ``by-layer``, whichever treats other layers as its setting does; ``float32``: checks in
    float32 under its own setting; ``autocast``: checks under autocast to its own dtype, unless that is
    float32, and under its own setting. ``convolution``: of the first native problem under its own setting,
    "every" direction, its "own" one, or "fwd".
    """

    below: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    float32: tuple[str, ...] = ()
    autocast: tuple[str, ...] = ()
    convolution: str = ""

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of all checks that it depends on."""
        named = (*self.below, *self.outside, *self.beside, *self.float32, *self.autocast)
        return (*named, "convolution") if self.convolution else named


@dataclass(frozen=True)
class LibraryLayer:
    """A kind of layer besides plain convolution that enters a vendor library. ``words`` name it; ``option``
    is the keyword of ``rocmprobe.bypass.install`` that sends it to PyTorch's own kernels."""

    words: str
    option: str


@dataclass(frozen=True)
class Explanation:
    """What a finding says of a check that fails: its ``subject``; the rung whose layer it is in
    (``blame.rung_layer``); and what to do where no setting was found to cure it. ``general``: the advice of a
    cause that the evidence names is better. ``needed``: programs may need it. ``wrong`` is the cause of wrong
    numbers where the evidence names none.
    """

    subject: str
    rung: str
    advice: str
    general: bool = True
    needed: bool = True
    wrong: str = ""


@dataclass(frozen=True)
class Check:
    """A kind of question.

    ``function`` answers it by torch, in a worker; None where the driver torch does not answer at all.
    ``exclusive``: it measures time or memory, and has the device for itself; ``own_process``: each problem,
    or dtype, has a process of its own. ``last``: asked at the end of a run, since it may stop the machine and
    nothing depends on it. ``once``: a failure is not tried again, since a try takes minutes.
    ``capi_dtypes``: the dtypes that the driver capi answers; empty for those of the problem, None where that
    driver does not answer at all. ``verified``: the recommendation rests on it, so ``--verify`` repeats it.
    ``seconds``: expected, besides what is measured, from a run of level quick on a two-core desktop.
    ``script``: the computation that ``rocmprobe repro`` prints for an outcome, by the name of the vendor
    library, or "" where that is off. ``layer``: what it tests in the vendor library. ``explanation``: the
    words of a finding about it; a primitive that is no layer of the library gets one from its name.
    """

    name: str
    rung: str
    question: str
    function: Optional[Callable[[CheckContext], CheckResult]]
    requires: Requires = Requires()
    exclusive: bool = False
    own_process: bool = False
    last: bool = False
    once: bool = False
    capi_dtypes: Optional[tuple[str, ...]] = None
    verified: bool = True
    seconds: float = 0.1
    script: Optional[Callable[[Outcome, str], Union[Computation, Program]]] = None
    layer: Optional[LibraryLayer] = None
    explanation: Optional[Explanation] = None


#: Of a check that needs PyTorch's own kernels alone, and of one that measures convolution.
KERNELS = Requires(("elementwise",))
EVERY_DIRECTION = Requires(convolution="every")


def layer_check(
    name: str,
    draw: partial[Named],
    call: Callable[..., Named],
    least: float = UNIT,
    limits: Mapping[str, float] = LAYER_LIMITS,
    **declared: Any,
) -> Check:
    """Declare a check that compares one layer or operator with itself in fp64 on the CPU."""

    def function(context: CheckContext) -> CheckResult:
        return compare(context, layer(context.dtype_name, draw, call, least, limits=limits))

    def script(outcome: Outcome, library: str) -> Computation:
        return layer(outcome.dtype, draw, call, least, limits=limits)

    return Check(name, function=function, script=script, **declared)
