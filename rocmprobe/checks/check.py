"""Declaration of a check: requirements, function, and texts for reports.

The suites choose the settings and dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Optional

if TYPE_CHECKING:
    from rocmprobe.checks.tools.computation import Computation
    from rocmprobe.checks.tools.context import CheckContext, CheckResult
    from rocmprobe.model.results import Outcome

Process = Literal["shared", "measuring", "own", "last"]


@dataclass(frozen=True)
class Requires:
    """Checks that must pass before another check, the dependent check, runs.

    - ``below``: checks under the setting ``default``
    - ``outside``: checks under ``default``, required only if the dependent check's setting computes
      convolution without the vendor library
    - ``beside``: checks under ``default``. If the setting turns off the vendor library, checks under
      ``vendor-off`` instead.
    - ``float32``: checks in float32 under the dependent check's setting
    - ``autocast``: checks under the dependent check's setting, required in all dtypes but float32
    - ``convolution``: directions of convolution that must pass: "every", "own" (the dependent check's
      direction), "fwd", or "" for none. Only one problem is required: the first in the dependent check's
      dtype, or the first of all if no problem has this dtype.

    Checks in ``below``, ``outside`` and ``beside`` must pass in the dependent check's dtype. If the dependent
    check computes with integers, they must pass in float32.
    """

    below: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    float32: tuple[str, ...] = ()
    autocast: tuple[str, ...] = ()
    convolution: str = ""

    @property
    def checks(self) -> tuple[str, ...]:
        """Names of all required checks."""
        named = (*self.below, *self.outside, *self.beside, *self.float32, *self.autocast)
        return (*named, "convolution") if self.convolution else named


@dataclass(frozen=True)
class LibraryLayer:
    """A kind of layer that a vendor library computes.

    ``words`` is the layer's name in texts. ``option`` is the argument of ``rocmprobe.bypass.install`` that
    moves the layer to PyTorch's own kernels.
    """

    words: str
    option: str


@dataclass(frozen=True)
class FailureText:
    """Text of the finding for a failed check.

    - ``rung``: name of a group of checks. The software layer that this group tests is blamed, unless the
      evidence shows another layer.
    - ``advice``: what to do if no setting avoids the failure
    - ``general``: True to replace ``advice`` by a known cause's advice if error messages show the cause
    - ``needed``: False if PyTorch programs do not use the tested operation directly
    - ``any_setting``: True to report failures under every setting, not only under ``default``
    - ``wrong``: cause to report if all failed cases gave incorrect results, unless an error message shows
      another cause
    """

    subject: str
    rung: str
    advice: str
    general: bool = True
    needed: bool = True
    any_setting: bool = False
    wrong: str = ""


@dataclass(frozen=True)
class Check:
    """A kind of test.

    - ``function``: runs the check with torch, or None if the check runs without torch (backends/direct)
    - ``process``: "shared" by the checks of a setting. "measuring" is shared by measurements, during which no
      other check uses the device. "own" is new for each problem or dtype. "last" is the same at the end of a
      run, for checks that can freeze the machine.
    - ``once``: True if the check repeats one computation for minutes, and a failure is not retried
    - ``seconds``: expected duration, without throughput measurements, on a two-core desktop at level quick
    - ``script``: returns the computation that ``rocmprobe repro`` prints for an outcome, or None if its
      template does not have the computation
    - ``explanation``: text of the finding. A primitive without ``explanation`` and ``layer`` gets a text from
      its name.
    """

    name: str
    rung: str
    question: str
    function: Optional[Callable[[CheckContext], CheckResult]]
    requires: Requires = Requires()
    process: Process = "shared"
    once: bool = False
    seconds: float = 0.1
    script: Optional[Callable[[Outcome], Computation]] = None
    layer: Optional[LibraryLayer] = None
    explanation: Optional[FailureText] = None

    @property
    def exclusive(self) -> bool:
        """True if no other check may use the device at the same time."""
        return self.process != "shared"

    @property
    def own_process(self) -> bool:
        """True if each problem or dtype needs a new process."""
        return self.process in ("own", "last")


#: Requirements, first of checks that need only PyTorch's own kernels, then of checks that need convolution in
#: every direction.
KERNELS = Requires(("elementwise",))
EVERY_DIRECTION = Requires(convolution="every")
