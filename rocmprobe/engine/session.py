"""Execution of a run's cases in one process, dependencies first."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Optional

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.journal import BaseJournal, CannotWrite, Plan, Retry, Waiting
from rocmprobe.engine.ladder import Ladder, name_of
from rocmprobe.engine.lease import DeviceLease, leased
from rocmprobe.engine.outcome import without_trial
from rocmprobe.engine.plan import Request, cases_of_stack, in_order
from rocmprobe.engine.setup import Setup
from rocmprobe.engine.trial import Trials
from rocmprobe.knowledge.settings import AS_FOUND, DEFAULT
from rocmprobe.knowledge.solvers import derive_setting
from rocmprobe.model.results import Outcome, Setting

#: Limit of hangs in the solver sweep, as a multiple of the limit for one setting.
_SWEEP_PATIENCE = 3
#: After convolution hung under so many settings, only settings that are recommended run more convolutions.
_HUNG_SETTINGS = 3


class Session:
    """The cases of a run that one process executes."""

    def __init__(self, setup: Setup, journal: BaseJournal) -> None:
        self.setup = setup
        self.journal = journal
        self._cases: dict[str, Case] = {}
        self._trials = Trials(setup, journal)
        self.ladders = {
            target.device: Ladder(setup, target, journal.find, self._cases)
            for target in setup.targets
            if target.torch
        }
        self._to_climb = set(self.ladders)

    def plan(self, cases: Sequence[Case], record: bool = True) -> None:
        """Add cases to the plan of this run, also while the run goes on, and record them if ``record``."""
        self._cases.update((case.id, case) for case in cases)
        if record:
            self.journal.append(Plan(tuple(case.id for case in cases)))

    def _climb(self, devices: Iterable[str]) -> Optional[Case]:
        """Return the next case of a ladder, or None if the ladder of each of ``devices`` is climbed."""
        for device in devices:
            case = None if self.journal.wedged(device) else self.ladders[device].next()
            if case:
                if case.id not in self._cases:
                    self.plan((case,))
                if self.journal.find(case.id):
                    self.journal.append(Retry(case.id))
                return case
        return None

    def plan_stacks(self, requests: Sequence[Request]) -> Sequence[Case]:
        """Plan the cases of ``requests`` under the stacks of climbed ladders. Return the new cases."""
        options = self.setup.options
        added: dict[str, Case] = {}
        for ladder in self.ladders.values():
            found = ladder.climbed.settings(self.setup, ladder.target) if ladder.climbed else ()
            for setting, dtypes in found:
                for request in requests:
                    for case in cases_of_stack(request, ladder.target, setting, dtypes, options, self._cases):
                        if case.id not in self._cases and options.selects(case.check, case.id):
                            added[case.id] = case
        planned = in_order(tuple(added.values()))
        self.plan(planned, record=bool(planned))
        return planned

    def climbing(
        self, requests: Sequence[Request], answer: Callable[[], None], device: Optional[str] = None
    ) -> Iterator[Case]:
        """Yield the cases of the ladder of ``device`` or of all devices, then ``requests`` under the stacks.

        Call ``answer`` as soon as a configuration can be recommended, and again at the end of the ladders.
        """
        devices = self.ladders if device is None else (device,)
        answered = False
        while case := self._climb(devices):
            climbed = (self.ladders[each] for each in devices)
            if not answered and all(ladder.answerable or ladder.climbed for ladder in climbed):
                answered = True
                answer()
            yield case
        answer()
        yield from self.plan_stacks(requests)

    def run_ladder(self, device: str, requests: Sequence[Request], answer: Callable[[], None]) -> None:
        """Run the cases of :meth:`climbing` on ``device``, unless this is done."""
        if device in self._to_climb:
            self._to_climb.discard(device)
            for case in self.climbing(requests, answer, device):
                self.outcome(case)

    def close(self, at_once: bool) -> None:
        """End the child process, by a signal if ``at_once`` is True."""
        self._trials.close(at_once)

    def outcome(self, case: Case) -> Outcome:
        """Return the outcome of a case from the journal, or run the case."""
        settled = self.journal.find(case.id)
        if settled:
            return settled
        forbidden = self._forbidden(case)
        if forbidden is None:
            return self._gathered(case)
        return self.journal.outcome(forbidden)

    def _forbidden(self, case: Case) -> Optional[Outcome]:
        """Return the outcome of a case that must not run, or None if the case can run."""
        setting = self.setup.setting(case)
        if self.journal.wedged(case.device) and setting.device != "cpu":
            return self._blocked(case, "the device stopped answering", "gpu-wedged")
        if self._hung_settings(case):
            message = f"convolution hung under {_HUNG_SETTINGS} settings; the other settings did not run"
            return self._blocked(case, message, "many-hangs")
        limits = (
            ("hang", self.setup.budgets.hangs, "many-hangs"),
            ("crash", self.setup.budgets.crashes, "many-crashes"),
        )
        for state, limit, failure in limits:
            if self.journal.count(state, case) >= limit:
                message = (
                    f"{limit:g} tests under {case.setting} ended in a {state}; its other tests did not run"
                )
                return self._blocked(case, message, failure)
        if setting.solver and self._hanging_solvers(case):
            return self._blocked(
                case, "solvers hung when run alone; the other solvers did not run", "many-hangs"
            )
        instead = self._runs_in_a_stack(case)
        if instead:
            return self._without_trial(case, "skipped", None, instead)
        meaningless = self._meaningless_on_gpu(case)
        if meaningless:
            return self._without_trial(case, "n/a", None, meaningless)
        for need in case.needs:
            gate = self._gate(need)
            if gate is None or not gate.blocks or self._cures(setting, gate):
                continue
            why = gate.evidence[0] if gate.evidence else gate.state
            reason = why if gate.state == "blocked" else f"{gate.id} is {gate.state}: {why}"
            return self._blocked(case, reason, f"rung:{gate.rung}")
        return self._unnecessary(case) or (self._derive_setting(case) if setting.is_incomplete else None)

    def _cures(self, setting: Setting, gate: Outcome) -> bool:
        """Return True if the check of ``gate``, below convolution, works under ``setting``."""
        return setting.changes_lower_layers and any(
            outcome.works
            for outcome in self.journal.state.outcomes.values()
            if (outcome.device, outcome.setting, outcome.check, outcome.dtype)
            == (gate.device, setting.name, gate.check, gate.dtype)
        )

    def _meaningless_on_gpu(self, case: Case) -> Optional[str]:
        if self.setup.simulated and case.direct:
            return "a simulated machine has no libraries that can be called without PyTorch"
        return self.setup.reason_not_here(self.setup.setting(case), self.setup.target(case))

    def _runs_in_a_stack(self, case: Case) -> Optional[str]:
        """Return why a case need not run: copies, kernels or matrix products need a cure that it lacks."""
        ladder = self.ladders.get(case.device)
        base = ladder.climbed.base if ladder and ladder.climbed else (DEFAULT,)
        setting = self.setup.setting(case)
        members = {setting.name, *setting.members, DEFAULT}
        if case.direct or setting.device == "cpu" or set(base) <= members or base == (AS_FOUND,):
            return None
        return f"this machine needs {name_of(base)}, so the test runs with it"

    def _hung_settings(self, case: Case) -> bool:
        """Return True if ``case`` would be one more convolution in a library in which many settings hung."""
        ladder, setting = self.ladders.get(case.device), self.setup.setting(case)
        outside = setting.bypass or not setting.vendor_library or setting.device == "cpu"
        if ladder is None or ladder.climbed is None or outside or case.rung != "conv":
            return False
        if any(setting.name == name_of(stack) for stack in ladder.climbed.stacks.values()):
            return False
        hung = {
            outcome.setting
            for outcome in self.journal.state.outcomes.values()
            if outcome.state == "hang" and outcome.device == case.device and outcome.rung == "conv"
        }
        return len(hung) >= _HUNG_SETTINGS

    def _hanging_solvers(self, case: Case) -> bool:
        own, all_of_them = self.journal.count("hang", case), self.journal.count("hang", case, of="check")
        return own > 0 or all_of_them >= _SWEEP_PATIENCE * self.setup.budgets.hangs

    def _unnecessary(self, case: Case) -> Optional[Outcome]:
        """Return the outcome ``skipped`` or ``blocked`` if ``case`` need not run, else None."""
        reasons = [self._gate(each) for each in case.if_failed]
        if not reasons or None in reasons:
            return None
        gates = [gate for gate in reasons if gate is not None]
        if any(gate.fails for gate in gates):
            return None
        for gate in gates:
            if gate.state == "blocked":
                return self._blocked(case, gate.evidence[0] if gate.evidence else "", gate.failure)
            if not gate.works:
                return self._without_trial(case, "skipped", None, f"{gate.id} is {gate.state}")
        if any(gate.setting == case.setting for gate in gates):
            why = f"{' and '.join(gate.check for gate in gates)} works here, so this test is not needed"
        else:
            why = "the default gives correct results here, so no other setting is needed"
        return self._without_trial(case, "skipped", None, why)

    def _derive_setting(self, case: Case) -> Optional[Outcome]:
        """Choose the environment variables of the case's setting. Return an outcome if none are suitable."""
        found = self.journal.derived(case)
        if found is None:
            solvers = [
                other.id
                for other in self._cases.values()
                if (other.check, other.device) == ("solver", case.device)
            ]
            made = derive_setting(outcome for outcome in map(self._gate, solvers) if outcome)
            if self.journal.wedged(case.device):
                return self._blocked(case, "the device stopped answering", "gpu-wedged")
            found = self.journal.derive(case, made)
        if found.env is None:
            return self._without_trial(case, found.state, None, found.reason)
        return None

    def _gate(self, case_id: str) -> Optional[Outcome]:
        # If the case has no outcome yet, this call runs it. No other process runs cases of this device.
        case = self._cases.get(case_id)
        return self.outcome(case) if case else None

    def _gathered(self, case: Case) -> Outcome:
        self.journal.intent(case)
        with self._leased(case):
            outcome = self._answered(case)
        # Return the redacted outcome, because pytest and its plugins show it.
        return self.journal.outcome(outcome)

    @contextmanager
    def _leased(self, case: Case) -> Iterator[None]:
        """Hold the lease of the case's device in the ``with`` block."""
        setup = self.setup
        if setup.leases is None:
            yield
            return
        lease = DeviceLease(leased(case, setup.setting(case), setup.targets), setup.leases)
        if not lease.take(wait=False):
            self.journal.append(Waiting(case.id, "device", None))
            lease.take()
            self.journal.append(Waiting(case.id, "device", 0))
        try:
            yield
        finally:
            lease.release()

    def _answered(self, case: Case) -> Outcome:
        try:
            return self._trials.outcome(case)
        except CannotWrite:
            raise
        except Exception:
            # An error in this process becomes the outcome of this case, and the other cases still run.
            self._trials.drop()
            lines = traceback.format_exc().splitlines()
            target = self.setup.target(case)
            return without_trial(case, target, "probe-error", None, lines[-1], *lines[-12:])

    def _blocked(self, case: Case, reason: str, failure: Optional[str]) -> Outcome:
        return self._without_trial(case, "blocked", failure, reason)

    def _without_trial(self, case: Case, state: str, failure: Optional[str], reason: str) -> Outcome:
        return without_trial(case, self.setup.target(case), state, failure, reason)
