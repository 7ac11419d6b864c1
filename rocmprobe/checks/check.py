"""Declaration of a check: its question, its requirements, its function, and the text of its finding.

The suites define the settings and dtypes in which a check runs.
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
    """Checks that a check depends on. If one of them fails, the check is blocked.

    ``below`` are checks in the check's own dtype under ``default``. ``outside`` are further checks of this
    kind, required only if the check's setting keeps convolution out of the vendor library. ``beside`` are
    checks in its own dtype under ``default``, ``vendor-off`` or ``by-layer``. The one that treats other
    layers as the check's setting does is used. ``float32`` are checks in float32 under the check's own
    setting. ``autocast`` are checks under autocast to its own dtype and under its own setting, unless the
    dtype is float32. ``convolution`` requires the first native problem under its own setting, in "every"
    direction, its "own" direction, or "fwd".
    """

    below: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    float32: tuple[str, ...] = ()
    autocast: tuple[str, ...] = ()
    convolution: str = ""

    @property
    def checks(self) -> tuple[str, ...]:
        """Names of all checks that the check depends on."""
        named = (*self.below, *self.outside, *self.beside, *self.float32, *self.autocast)
        return (*named, "convolution") if self.convolution else named


@dataclass(frozen=True)
class LibraryLayer:
    """A kind of layer, other than plain convolution, that a vendor library computes.

    ``words`` name the layer. ``option`` is the keyword of ``rocmprobe.bypass.install`` that sends the layer
    to PyTorch's own kernels.
    """

    words: str
    option: str


@dataclass(frozen=True)
class Explanation:
    """Text of the finding for a check that fails.

    ``subject`` is the subject of the finding. ``rung`` is the rung whose layer is at fault
    (``blame.rung_layer``). ``advice`` says what to do if no setting cures the failure. If ``general`` is set,
    the advice of a cause that the evidence names takes precedence. If ``needed`` is set, programs may need
    the tested operation. ``wrong`` is the cause of incorrect numbers if the evidence names no cause.
    """

    subject: str
    rung: str
    advice: str
    general: bool = True
    needed: bool = True
    wrong: str = ""


@dataclass(frozen=True)
class Check:
    """A kind of test.

    ``function`` runs the check by torch in a worker, or is None if the driver torch cannot run the check. If
    ``exclusive`` is set, the check measures time or memory, so no other check uses the device at the same
    time. If ``own_process`` is set, each problem or dtype gets its own process. If ``last`` is set, the check
    runs at the end of a run, because it can stop the machine and nothing depends on it. If ``once`` is set, a
    failure is not retried, because an attempt takes minutes.

    ``capi_dtypes`` are the dtypes that the driver capi runs. If empty, the driver uses the dtype of the
    problem. If None, the driver cannot run the check. If ``verified`` is set, the recommendation rests on the
    check, so ``--verify`` repeats it. ``seconds`` is the expected time without measurements, from a run of
    level quick on a two-core desktop. ``script`` returns the computation that ``rocmprobe repro`` prints for
    an outcome, given the name of the vendor library ("" if off). ``layer`` is the layer of the vendor library
    that is tested. ``explanation`` is the text of a finding about the check. A primitive that is no layer of
    the library gets its explanation from its name.
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


#: Requirements of a check that needs only PyTorch's own kernels, and of a check that measures convolution.
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
    """Declare a check that compares one layer or operator with the same computation in fp64 on the CPU."""

    def function(context: CheckContext) -> CheckResult:
        return compare(context, layer(context.dtype_name, draw, call, least, limits=limits))

    def script(outcome: Outcome, library: str) -> Computation:
        return layer(outcome.dtype, draw, call, least, limits=limits)

    return Check(name, function=function, script=script, **declared)
