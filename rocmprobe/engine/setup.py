"""The setup of one process: devices, settings and limits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Optional

from rocmprobe.backends import BACKENDS, Backend
from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.budgets import BUDGETS, Budgets
from rocmprobe.engine.journal import Run
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.environment import removed
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.settings import DEFAULT, named
from rocmprobe.model.options import RunOptions
from rocmprobe.model.results import Machine, Setting
from rocmprobe.simulate.machines import SimulatedMachine


@dataclass(frozen=True)
class Setup:
    """The devices, settings and limits of a session.

    - ``settings``: settings for each device
    - ``machine``: the tested machine, which can be simulated
    - ``simulated``: the simulated machine, or None on a real machine
    - ``leases``: the run's folder, which device leases name, or None if no lease is needed
    - ``spawn``: True if no worker is forked
    - ``sharing``: number of processes that run tests at once and share the CPU cores
    """

    options: RunOptions
    targets: tuple[Device, ...]
    settings: Mapping[str, tuple[Setting, ...]]
    budgets: Budgets
    machine: Machine = field(default_factory=Machine)
    simulated: Optional[SimulatedMachine] = None
    leases: Optional[Path] = None
    spawn: bool = False
    sharing: int = 1

    @cached_property
    def _rows_of(self) -> Mapping[str, Mapping[str, Setting]]:
        return {device: {row.name: row for row in rows} for device, rows in self.settings.items()}

    def setting(self, case: Case) -> Setting:
        """Return the case's setting, without variables that the run chooses."""
        return self.named(case.device, case.setting)

    def named(self, device: str, name: str) -> Setting:
        """Return a setting of ``device``. A name such as "no-sdma+no-gemm" composes settings.

        Raise BadInput if the settings cannot be combined.
        """
        if (device, name) not in self._composed:
            self._composed[device, name] = named(self._rows_of[device], name)
        return self._composed[device, name]

    @cached_property
    def _composed(self) -> dict[tuple[str, str], Setting]:
        return {}

    def changes_environment(self, device: str) -> bool:
        """Return True if a program under the setting ``default`` lacks a variable that the user has set."""
        owner = {name: str(fact.value) for name, fact in self.machine.variables.items() if fact.value}
        return bool(removed(self.named(device, DEFAULT), owner))

    def owns(self, names: Iterable[str]) -> bool:
        """Return True if the user has set one of these environment variables."""
        return any(name in self.machine.variables for name in names)

    def reason_not_here(self, setting: Setting, target: Device) -> Optional[str]:
        """Return why ``setting`` has no effect on the GPU of ``target``, or None."""
        native = target.native_isa or "not known"
        if setting.isa and not re.fullmatch(setting.isa, native):
            return f"only for native ISAs {setting.isa}; this GPU is {native}"
        if OVERRIDE in setting.env and target.effective_isa != target.native_isa:
            return f"an override is already set: this GPU runs as {target.effective_isa}"
        return None

    def target(self, case: Case) -> Device:
        """Return the case's device."""
        return next(target for target in self.targets if target.device == case.device)

    def on_cpu(self, case: Case) -> bool:
        """Return True if a CPU computes the case, also in place of a simulated GPU."""
        return self.simulated is not None or "cpu" in (self.setting(case).device, case.device)

    def backend(self, case: Case) -> Backend:
        """Return the backend with the vendor library that the case uses."""
        on_cpu = self.setting(case).device == "cpu"
        return BACKENDS["onednn" if on_cpu else self.target(case).backend]


def setup_of(run: Run, folder: Path) -> Setup:
    """Return the setup of the run in ``folder``."""
    return Setup(
        run.options, run.targets, run.settings, budgets_of(run), run.machine, run.simulation,
        # The times of a simulated machine are meaningless, so measurements need no lease.
        leases=None if run.simulation else folder.resolve(),
        # pytest-xdist sets this variable to the number of workers.
        sharing=int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
    )  # fmt: skip


def budgets_of(run: Run) -> Budgets:
    """Return the limits of a run."""
    budgets = BUDGETS[run.options.level]
    if run.options.minutes:
        # The first call of the check soak takes long, because it compiles the kernels of a whole network.
        first_call = BUDGETS["long"].first_call
        budgets = replace(budgets, soak=60 * run.options.minutes, first_call=first_call)
    return replace(budgets, **run.simulation.budgets) if run.simulation else budgets
