"""The process that asks: it looks at the machine and puts the questions to a worker, one after the other.

Whatever it does may take for ever, a read of a file included; ``watch`` ends it then. It leaves nothing
behind: its worker dies with it, and the guardian removes its folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from rocmprobe.checks.tools.case import Case
from rocmprobe.detect.gpus.users import users
from rocmprobe.detect.machine import detect_devices
from rocmprobe.detect.tree import Tree
from rocmprobe.engine.interpreters import OWN, Launch, found_again, interpreters
from rocmprobe.engine.interpreters import launch as launched
from rocmprobe.engine.journal import NullJournal
from rocmprobe.engine.lease import DeviceLease, holder, lease_name
from rocmprobe.engine.options import Budgets, RunOptions
from rocmprobe.engine.session import Session
from rocmprobe.engine.targets import Device, find_targets
from rocmprobe.gate.messages import Order, Pipe
from rocmprobe.gate.questions import Question, questions, setting_of
from rocmprobe.judge.assessment import device_of
from rocmprobe.judge.blame import library
from rocmprobe.judge.recommendation.configuration import isa_override
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.model.results import (
    RECOMMENDED,
    BadInput,
    Environment,
    Machine,
    NothingToTest,
    Outcome,
    Results,
    Setting,
    read_results,
)
from rocmprobe.process.guardian import guardian
from rocmprobe.simulate.machines import SimulatedMachine, load_machine

#: In place of the folder of a run, for those who wait for a device that a check holds.
CHECK = "check"
#: Shares of the budget: how long a worker may be silent at its start, in a first call and in any other.
_START, _FIRST_CALL, _STEADY = 0.6, 0.4, 0.3
#: Where temporary files may go when no folder that Python knows takes any.
_OTHER_FOLDERS = ("/dev/shm", "/run")  # noqa: S108
#: What a worker writes at most, its databases and its compiled kernels, is far more; this shows a full disk.
_TRIED_BYTES = 1 << 16


class Over(Exception):
    """The check ends here, with this state and reason."""

    def __init__(self, state: str, reason: str, text: str) -> None:
        super().__init__(text)
        self.state = state
        self.reason = reason


def ask(order: Order, pipe: Pipe) -> None:
    """Carry out ``order``, and report it down the pipe."""
    try:
        _make_room()
        _ask(order, pipe)
    except Over as over:
        pipe.tell("over", state=over.state, reason=over.reason, text=str(over))
    except BadInput as error:
        pipe.tell("over", usage=str(error))
    else:
        pipe.tell("over")


def _make_room() -> None:
    """Let temporary files go where there is room for them."""
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    failed = ""
    for folder in dict.fromkeys((*named, "/tmp", "/var/tmp", *_OTHER_FOLDERS)):  # noqa: S108
        if not folder:
            continue
        try:
            with tempfile.TemporaryFile(dir=folder) as stream:
                stream.write(bytes(_TRIED_BYTES))
                stream.flush()
        except OSError as error:
            failed = failed or f"{error.strerror} in {folder}"
            continue
        # For the worker and its compilers, too.
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        return
    raise Over("unknown", "error", f"no room for temporary files: {failed}; name a folder with TMPDIR")


def _ask(order: Order, pipe: Pipe) -> None:
    simulated = load_machine(order.simulate) if order.simulate else None
    path, results = _results(order, simulated)
    pipe.tell("facts", simulated=simulated.name if simulated else None, results=str(path) if path else None)
    if results and not simulated and library(results) == "MIOpen":
        _set_override(isa_override(results))
    launch, machine = _machine(results.environment if results else None, simulated)
    target = _target(order.device, machine, results)
    if results:
        _same_chip(results, target)
    setting = setting_of(_name(order, results), target, machine.value("torch.version"), results)
    gpu = target.gpu
    pipe.tell(
        "facts", setting=setting.name, device=setting.device or target.device,
        gpu=gpu.name.value if gpu else None, native_isa=target.native_isa,
        effective_isa=target.effective_isa,
    )  # fmt: skip
    lease = None if simulated else _held(target, setting)
    try:
        purpose = str(results.options.get("purpose") or "training") if results else "training"
        own = simulated.problems if simulated else ()
        asked = questions(target, setting, purpose, results, own)
        pipe.tell("plan", ids=[each.case.id for each in asked])
        guardian_of = guardian()
        pipe.tell("facts", guardian=guardian_of.pid)
        budgets = Budgets(
            _START * order.budget, _FIRST_CALL * order.budget, _STEADY * order.budget, teardown=0.5,
            measure=0.1, tries=1,
        )  # fmt: skip
        session = Session(
            RunOptions(purpose=purpose, simulate=order.simulate or None, redact=False), (target,),
            {target.device: (setting,)}, budgets, NullJournal(pipe.forward), launch=launch, spawn=True,
            simulated=dataclasses.replace(simulated, fresh=False) if simulated else None,
        )  # fmt: skip
        try:
            session.plan(each.case for each in asked)
            _put(asked, session, pipe)
        finally:
            session.close(at_once=True)
    finally:
        if lease:
            lease.let_go()


def _set_override(before: Mapping[str, str]) -> None:
    """Set the ISA override to the one that the results rest on."""
    for name in [name for name in os.environ if name.startswith(OVERRIDE)]:
        del os.environ[name]
    os.environ.update(before)


def _put(asked: tuple[Question, ...], session: Session, pipe: Pipe) -> None:
    """Ask until something fails: then the answer is known, and the next one could only take time."""
    for question in asked:
        case = question.case
        pipe.tell("asking", id=case.id)
        started = time.monotonic()
        outcome = session.outcome(case)
        pipe.tell("answer", usual=question.usual, **_answer_of(case, outcome, time.monotonic() - started))
        if outcome.blocks:
            return


def _answer_of(case: Case, outcome: Outcome, seconds: float) -> dict[str, Any]:
    return {
        "id": case.id, "check": case.check, "dtype": case.dtype, "direction": case.direction,
        "state": outcome.state, "seconds": round(seconds, 3), "phase": outcome.phase,
        "activity": outcome.activity, "cause": outcome.cause,
        "evidence": list(outcome.evidence[:3]),
    }  # fmt: skip


def _results(order: Order, simulated: Optional[SimulatedMachine]) -> tuple[Optional[Path], Optional[Results]]:
    """The results to rest on, with their path."""
    if order.results is None:
        try:
            return (RECOMMENDED, read_results(RECOMMENDED)) if not simulated else (None, None)
        except (BadInput, OSError):
            # Nobody named it.
            return None, None
    path = order.results / "results.json" if order.results.is_dir() else order.results
    results = read_results(path)
    if results.simulated != (simulated.name if simulated else None):
        of = f"the simulated machine {results.simulated}" if results.simulated else "a real machine"
        mend = f"add --simulate {results.simulated}" if results.simulated else "leave out --simulate"
        raise BadInput(f"{path}: these results are of {of}; {mend}, or name other results")
    return path, results


def _machine(
    environment: Optional[Environment], simulated: Optional[SimulatedMachine]
) -> tuple[Launch, Machine]:
    """The machine as the Python of ``environment`` sees it, or this one, and how a worker starts there."""
    if environment is None:
        here = detect_devices()
        if here.value("torch.kind") is None:
            raise Over("unknown", "no-torch", "no torch in this Python; see `rocmprobe install`")
        return OWN, simulated.machine if simulated else here
    try:
        python = found_again(environment.name, environment.python)
    except BadInput as error:
        what = f"{environment.python}: the interpreter of {environment.name!r}, which the results recommend"
        raise BadInput(f"{what}, is not there; name other results") from error
    found = interpreters([f"{environment.name}={python}"])[0]
    machine = detect_devices(python=found.imports)
    if machine.value("torch.kind") is None:
        raise Over("unknown", "no-torch", f"no torch in {environment.name}; nothing could be tried")
    return launched(found.python, found.reads_toml), machine


def _target(wanted: str, machine: Machine, results: Optional[Results]) -> Device:
    """The device that is meant: with ``auto`` that of the results, else the first GPU, and the CPU where
    there is no GPU and torch is built for none. A GPU that torch cannot use is no reason to pass the CPU."""
    recommended = results.recommendation if results else None
    judged = recommended is None or recommended.verdict != "gpu-not-tested"
    before = device_of(results) if results and judged and wanted == "auto" else None
    try:
        target = find_targets(before or wanted, machine)[0]
    except NothingToTest as error:
        if before:
            text = f"{before} of the results is gone: {error}"
            raise Over("problem", "no-device", text) from error
        raise Over("nothing", "no-device", str(error)) from error
    for_cpu = machine.value("torch.kind") == "cpu"
    if wanted == "auto" and not before and target.device == "cpu" and (machine.gpus or not for_cpu):
        built = f"torch {machine.value('torch.version')} is built for {'the CPU' if for_cpu else 'one'}"
        raise Over("nothing", "no-device", f"no GPU that torch could use, and {built}; --device cpu asks it")
    return target


def _same_chip(results: Results, target: Device) -> None:
    """Raises Over where the results are of another chip: what they recommend says nothing of this one."""
    found = {each.native_isa for each in results.outcomes if each.device == target.device and each.native_isa}
    if target.native_isa and found and target.native_isa not in found:
        of = " and ".join(sorted(found))
        text = f"the results are of {of}, this GPU is {target.native_isa}; name results of one like this"
        raise Over("unknown", "error", text)


def _name(order: Order, results: Optional[Results]) -> str:
    recommended = results.recommendation if results else None
    return order.setting or (recommended.configuration.setting if recommended else None) or "default"


def _held(target: Device, setting: Setting) -> Optional[DeviceLease]:
    """Hold the device alone; a run that comes meanwhile waits until the check is over.

    Raises Over where another process uses it.
    """
    on_cpu = setting.device == "cpu"
    name = "cpu" if on_cpu else lease_name(target)
    lease = None
    # Where there is no place for leases, nobody else has one either.
    with contextlib.suppress(OSError):
        lease = DeviceLease([name], Path(CHECK))
        if not lease.take(wait=False):
            other = holder(name)
            who = f"pid {other.pid} ({_named(other.run)})" if other else "another rocmprobe"
            raise Over("busy", "busy", f"{who} holds {name}; nothing was tried")
    found = users(Tree(Path("/")), target.gpu, os.getpid()) if target.gpu and not on_cpu else ()
    if found:
        who = ", ".join(f"pid {each.pid} ({each.name})" if each.name else f"pid {each.pid}" for each in found)
        raise Over("busy", "busy", f"{who} has the GPU open ({found[0].source}); nothing was tried")
    return lease


def _named(run: str) -> str:
    return "another check" if run == CHECK else f"rocmprobe run, {run}"
