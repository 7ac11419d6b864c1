"""Trials of a case: retries after a failure, repeated starts, and a test if the device still responds."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Optional, Union

from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.conversation import Conversation, Reply
from rocmprobe.engine.journal import BaseJournal, Wedged
from rocmprobe.engine.outcome import merge_starts, outcome_of
from rocmprobe.engine.setup import Setup
from rocmprobe.model.results import Outcome
from rocmprobe.model.states import works

#: Maximum number of tries of a case, keyed by its state. If the worker can run another case after the
#: failure, there is only one try.
TRIES = {"crash": 3, "error": 3, "hang": 2}
#: Number of pairs of a cold and a warm start, if there is time. With three pairs, it is unlikely (1 in 20)
#: that all warm starts are faster than all cold starts by chance.
START_ROUNDS = 3
#: Checks that show in a second if a device responds. The last one shows most.
_CANARIES = ("copy", "elementwise", "rocblas-direct")


class Trials:
    """The trials of a session. Every crash or hang of a worker becomes an outcome."""

    def __init__(self, setup: Setup, journal: BaseJournal) -> None:
        self._setup = setup
        self._journal = journal
        self._workers = Conversation(setup, journal)
        #: End the worker, and remove the temporary folder.
        self.close = self._workers.close
        #: Kill the worker after an error in this process.
        self.drop = self._workers.drop

    def outcome(self, case: Case) -> Outcome:
        """Run ``case`` in a worker and return the outcome."""
        conditions = self._workers.conditions = {}
        outcome = self._start_up(case) if case.check == "start-up" else self._tried(case)
        return replace(outcome, conditions=conditions)

    def _start_up(self, case: Case) -> Outcome:
        """Run ``case`` in new workers, alternately with empty (cold) and with filled (warm) databases."""
        cold: list[Outcome] = []
        warm: list[Outcome] = []
        ends = time.monotonic() + self._setup.budgets.starts
        # Alternate, so that a change of the machine's load affects cold and warm starts equally.
        while not cold or (len(cold) < START_ROUNDS and time.monotonic() < ends):
            self._workers.forget_databases(case)
            for outcomes in (cold, warm):
                outcomes.append(self._tried(case))
                self._workers.end()
                if not outcomes[-1].works:
                    return merge_starts(cold, warm)
        return merge_starts(cold, warm)

    def _tried(self, case: Case) -> Outcome:
        """Run ``case`` again after a failure, as often as ``TRIES`` allows."""
        replies = [self._workers.ask(case)]
        if self._setup.budgets.tries > 1:
            most, wedged = self._most_tries(replies[0], case), False
            while replies[-1].over and len(replies) < most and not wedged:
                # Do not test the device if the import of torch failed, because the device was not used then.
                wedged = replies[-1].phase != "start" and self._is_wedged(case)
                if not wedged:
                    replies.append(self._workers.ask(case))
                    self._workers.end()
                    most = self._most_tries(replies[-1], case)
            untested = works(replies[-1].state) or CHECKS[case.check].once
            if not wedged and replies[-1].over and untested and replies[-1].phase != "start":
                self._is_wedged(case)
        setting = self._journal.completed(case, self._setup.setting(case))
        return outcome_of(case, replies, self._setup.target(case), setting, self._setup.backend(case))

    def _most_tries(self, reply: Reply, case: Case) -> int:
        """Return the maximum number of tries for a case after ``reply``."""
        if CHECKS[case.check].once or (reply.state == "hang" and self._is_known(reply, case)):
            return 1
        return TRIES.get(reply.state, 1)

    def _is_known(self, hang: Reply, case: Case) -> bool:
        """Return True if an earlier hang of this run, which was repeated, has the same cause.

        The cause is the same if the layer is the same, and if the worker did the same.
        """

        def cause(each: Union[Case, Outcome], activity: Optional[str]) -> tuple[object, ...]:
            setting = self._setup.named(each.device, each.setting)
            library = setting.vendor_library and not setting.bypass
            return each.device, setting.device, library, each.rung, activity

        wanted = cause(case, hang.activity)
        return any(
            each.state == "hang" and cause(each, each.activity) == wanted
            for each in self._journal.state.outcomes.values()
        )

    def _is_wedged(self, case: Case) -> bool:
        """Return True, and record it, if a small check in a new worker shows that the device is lost."""
        worked = self._working_canary(case.device)
        if worked:
            canary = Case(case.device, worked.setting, worked.check, str(worked.dtype))
        elif case.rung in ("copy", "elementwise", "im2col"):
            # A cure can help the lowest layers, so their failure does not prove that the device is lost.
            return False
        else:
            check = "elementwise" if self._setup.target(case).torch else "rocblas-direct"
            canary = Case(case.device, "default", check, "float32")
        for _ in range(2):
            if self._journal.wedged(case.device):
                break
            reply = self._workers.ask(canary)
            self._workers.end()
            # If this check did not pass earlier in the run, an error proves nothing, but a hang proves
            # that the device is lost.
            if works(reply.state) or (reply.state != "hang" and not worked):
                return False
        self._journal.append(Wedged(case.device))
        return True

    def _working_canary(self, device: str) -> Optional[Outcome]:
        """Return the last small check that worked on the device, or None. A kernel shows more than a copy."""
        worked = [
            outcome
            for outcome in self._journal.state.outcomes.values()
            if outcome.device == device and outcome.works and outcome.check in _CANARIES
        ]
        return max(reversed(worked), key=lambda outcome: _CANARIES.index(outcome.check), default=None)
