"""A session: one process's part in a run. Settles each case once, gates first, under the device lock."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Optional

from rocmprobe.cases import Case
from rocmprobe.machines import SimulatedMachine
from rocmprobe.model import UNLEARNED_STATES, WORKING_STATES, Outcome, Setting, from_json
from rocmprobe.runner.budgets import BUDGETS
from rocmprobe.runner.journal import CannotWrite, Journal, header
from rocmprobe.runner.locks import device_lock
from rocmprobe.runner.options import RunOptions
from rocmprobe.runner.targets import Target
from rocmprobe.runner.trial import Trials

#: States of a gate that let pass what stands on it: it holds, or nothing was learned of it.
_OPEN = WORKING_STATES | (UNLEARNED_STATES - {"blocked"})


class Session:
    """Outcomes by case, read from the journal of the run in ``folder`` or gathered and written there."""

    def __init__(self, folder: Path) -> None:
        run = header(folder)
        self.options: RunOptions = from_json(RunOptions, run["options"])
        self.targets = tuple(from_json(Target, target) for target in run["targets"])
        self.settings: dict[str, tuple[Setting, ...]] = {
            device: tuple(from_json(Setting, setting) for setting in settings)
            for device, settings in run["settings"].items()
        }
        self.journal = Journal(folder, self.options.redact)
        self._cases: dict[str, Case] = {}
        budgets = BUDGETS[self.options.level]
        simulated: Optional[SimulatedMachine] = None
        if run["simulation"]:
            simulated = from_json(SimulatedMachine, run["simulation"])
            budgets = replace(budgets, **simulated.budgets)
        self._budgets = budgets
        self._patience = 3 * (budgets.start + 3 * budgets.first_call)
        self._trials = Trials(
            {target.device: target for target in self.targets},
            {device: {setting.name: setting for setting in rows} for device, rows in self.settings.items()},
            budgets,
            simulated,
            self.journal,
        )

    def plan(self, cases: Iterable[Case], alone: bool) -> None:
        """Say which cases this run holds. ``alone``: no other process settles any of them."""
        self._cases = {case.id: case for case in cases}
        self._alone = alone

    def close(self, at_once: bool) -> None:
        """``at_once``: the child may be in the middle of something and is not waited for."""
        self._trials.close(at_once)

    def outcome(self, case: Case) -> Outcome:
        """The case's outcome. It is in the journal before this returns."""
        settled = self.journal.find(case.id)
        if settled:
            return settled
        forbidden = self._forbidden(case)
        if forbidden is None:
            return self._gathered(case)
        self.journal.outcome(forbidden)
        return self.journal.find(case.id) or forbidden

    def _forbidden(self, case: Case) -> Optional[Outcome]:
        """A ``blocked`` outcome if the device is gone or something the case stands on does not hold."""
        setting = next(each for each in self.settings[case.device] if each.name == case.setting)
        if self.journal.wedged(case.device) and setting.device != "cpu":
            return self._blocked(case, "the device stopped answering", "gpu-wedged")
        limits = (
            ("hang", self._budgets.hangs, "many-hangs"),
            ("crash", self._budgets.crashes, "many-crashes"),
        )
        for state, limit, cause in limits:
            if self.journal.count(state, case) >= limit:
                told = f"{limit:g} questions under {case.setting} ended in a {state}; the rest is not asked"
                return self._blocked(case, told, cause)
        for need in case.needs:
            gate = self._gate(need)
            if gate is None or gate.state in _OPEN or gate.cause == "run-died":
                continue
            why = gate.evidence[0] if gate.evidence else gate.state
            reason = why if gate.state == "blocked" else f"{gate.id} is {gate.state}: {why}"
            return self._blocked(case, reason, f"rung:{gate.rung}")
        return None

    def _gate(self, case_id: str) -> Optional[Outcome]:
        """The outcome of a case that another stands on; None if the run does not hold it."""
        case = self._cases.get(case_id)
        if case is None:
            return None
        ends = time.monotonic() + self._patience
        while not self._alone and time.monotonic() < ends:
            outcome = self.journal.find(case_id)
            if outcome:
                return outcome
            time.sleep(0.05)
        return self.outcome(case)

    def _gathered(self, case: Case) -> Outcome:
        name = "cpu" if self.options.simulate else case.device
        with device_lock(name, case.exclusive):
            self.journal.intent(case)
            outcome = self._answered(case)
            # Under the lock, so that the times of the two records lie within it.
            self.journal.outcome(outcome)
            # As it was written: pytest and its plugins show it, too.
            return self.journal.find(case.id) or outcome

    def _answered(self, case: Case) -> Outcome:
        try:
            return self._trials.outcome(case)
        except CannotWrite:
            raise
        except Exception:
            # What breaks on this side of the pipes is an answer, too, and must not cost the others.
            self._trials.drop()
            lines = traceback.format_exc().splitlines()
            return unasked(case, self._target(case), "probe-error", None, lines[-1], *lines[-12:])

    def _blocked(self, case: Case, reason: str, cause: str) -> Outcome:
        return unasked(case, self._target(case), "blocked", cause, reason)

    def _target(self, case: Case) -> Target:
        return next(target for target in self.targets if target.device == case.device)


def unasked(case: Case, target: Target, state: str, cause: Optional[str], *evidence: str) -> Outcome:
    """The outcome of a case that no trial answered."""
    return Outcome(
        id=case.id, device=case.device, driver=case.driver, setting=case.setting, check=case.check,
        rung=case.rung, state=state, native_isa=target.native_isa, effective_isa=target.effective_isa,
        problem=case.problem, direction=case.direction, dtype=case.dtype, cause=cause, evidence=evidence,
    )  # fmt: skip
