"""Declaration of a check: its requirements, its function, and the text of its finding.

The suites define under which settings and in which dtypes a check runs.
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
    """Checks that must pass before a check runs.

    - ``below``: checks under the setting ``default``.
    - ``outside``: checks under ``default``, required only if the check's setting computes convolution without
      the vendor library.
    - ``beside``: checks under ``default``. If the check's setting turns off the vendor library, they run
      under ``vendor-off``. If the check's setting is ``by-layer``, they run under ``by-layer``.
    - ``float32``: checks in float32 under the check's own setting.
    - ``autocast``: checks under the check's own setting. They are required only if the dtype is not float32.
    - ``convolution``: directions in which the first convolution problem of the same dtype must pass under the
      check's own setting: "every", "own" (the check's direction), "fwd", or "" for no direction.

    Except in ``float32``, a required check has the dtype of the check that requires it. For integers and for
    the driver capi, the dtype is float32 instead.
    """

    below: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    float32: tuple[str, ...] = ()
    autocast: tuple[str, ...] = ()
    convolution: str = ""

    @property
    def checks(self) -> tuple[str, ...]:
        """Names of the checks in all fields."""
        named = (*self.below, *self.outside, *self.beside, *self.float32, *self.autocast)
        return (*named, "convolution") if self.convolution else named


@dataclass(frozen=True)
class LibraryLayer:
    """A kind of layer, other than plain convolution, that a vendor library computes.

    ``words`` is the name of the layer in texts. ``option`` is the keyword argument of
    ``rocmprobe.bypass.install`` that makes PyTorch's own kernels compute the layer.
    """

    words: str
    option: str


@dataclass(frozen=True)
class Explanation:
    """Text of the finding for a check that fails.

    ``rung`` is the group of the check. Unless the evidence names another software layer, the finding blames
    the layer that this group tests. ``advice`` says what to do if no setting avoids the failure. If
    ``general`` is True and the evidence shows a cause, advice about this cause replaces ``advice``.
    ``needed`` is False if PyTorch programs do not call the tested operation themselves. ``wrong`` is the
    cause to name for incorrect results if the evidence shows no cause.
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

    ``function`` is None if only the driver capi (without torch) can run the check. ``exclusive`` is True if
    no other check may use the device at the same time, e.g. because the check measures time or memory.
    ``own_process`` is True if the check needs a new process for each problem or dtype. ``last`` is True for a
    check that runs at the end of a run, because it can freeze the machine and no other check depends on it.
    ``once`` is True if a failure is not retried, because an attempt takes minutes.

    ``capi_dtypes`` are the dtypes in which the driver capi runs the check. If ``capi_dtypes`` is empty, capi
    uses the dtype of the problem. If it is None, capi cannot run the check. ``verified`` is True if the
    recommendation depends on the check, so that ``--verify`` repeats it. ``seconds`` is the expected
    duration, without the time for a throughput measurement. It comes from a run of level quick on a two-core
    desktop. ``script`` returns the computation that ``rocmprobe repro`` prints for an outcome. Its second
    argument is the name of the vendor library, or "" if the library is off. For a primitive without ``layer``
    and ``explanation``, the text is made from its name.
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


#: Requirements of checks that need only PyTorch's own kernels, then of checks that measure convolution.
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
    """Return a check that compares one layer or operator to the same computation in fp64 on the CPU."""

    def function(context: CheckContext) -> CheckResult:
        return compare(context, layer(context.dtype_name, draw, call, least, limits=limits))

    def script(outcome: Outcome, library: str) -> Computation:
        return layer(outcome.dtype, draw, call, least, limits=limits)

    return Check(name, function=function, script=script, **declared)
