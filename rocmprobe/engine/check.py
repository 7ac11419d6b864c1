"""``rocmprobe check``: a session whose plan is a few small cases, and whose first failure ends it.

Any step, even reading a file, can block forever. ``engine/watchdog.py`` then kills this process.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

import msgspec.structs

from rocmprobe.detect.gpus.users import users
from rocmprobe.detect.machine import detect_devices
from rocmprobe.detect.tree import Tree
from rocmprobe.engine.budgets import within
from rocmprobe.engine.check_plan import cases_of
from rocmprobe.engine.check_verdict import Facts, Over
from rocmprobe.engine.journal import NullJournal
from rocmprobe.engine.lease import DeviceLease, holder, lease_name
from rocmprobe.engine.session import Session
from rocmprobe.engine.setup import Setup
from rocmprobe.engine.targets import Device, find_targets
from rocmprobe.engine.watchdog import Send
from rocmprobe.judge.assessment import device_of, library
from rocmprobe.judge.recommendation.configuration import isa_override
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.layers import chosen_setting
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.options import RunOptions
from rocmprobe.model.results import BadInput, Machine, NothingToTest, Results, Setting
from rocmprobe.model.results_file import RECOMMENDED, read_results, results_file
from rocmprobe.process.guardian import guardian
from rocmprobe.simulate.machines import SimulatedMachine, load_machine

#: Name of the holder in the device lease of `rocmprobe check`.
CHECK = "check"
#: Folders for temporary files if Python's usual folders are full.
_OTHER_FOLDERS = ("/dev/shm", "/run")  # noqa: S108
#: Number of bytes written to test whether a disk is full. A worker's databases and kernels need far more.
_TRIED_BYTES = 1 << 16


class CheckOver(Exception):
    """Raised to end the check with a state and a reason."""

    def __init__(self, state: str, reason: str, text: str) -> None:
        super().__init__(text)
        self.end = Over(state, reason, text)


@dataclass(frozen=True)
class CheckOptions:
    """Options of ``rocmprobe check``.

    ``results`` is a file or folder, or None for the last complete run. If ``setting`` is "", use the
    recommended setting or ``default``. ``budget`` is in seconds.
    """

    results: Optional[Path] = None
    device: str = "auto"
    setting: str = ""
    simulate: str = ""
    budget: float = 50.0


def probe(options: CheckOptions, send: Send) -> None:
    """Run the check and report its progress through ``send``."""
    end = Over()
    try:
        _find_temporary_folder()
        _probe(options, send)
    except CheckOver as over:
        end = over.end
    except BadInput as error:
        end = Over(usage=str(error))
    send(end)


def _find_temporary_folder() -> None:
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    failed = ""
    for folder in filter(None, dict.fromkeys((*named, "/tmp", "/var/tmp", *_OTHER_FOLDERS))):  # noqa: S108
        try:
            with tempfile.TemporaryFile(dir=folder) as stream:
                stream.write(bytes(_TRIED_BYTES))
                stream.flush()
        except OSError as error:
            failed = failed or f"{error.strerror} in {folder}"
            continue
        # The environment variable is for the worker and its compilers.
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        return
    raise CheckOver(
        "unknown", "error", f"no room for temporary files: {failed}; set TMPDIR to another folder"
    )


def _probe(options: CheckOptions, send: Send) -> None:
    simulated = load_machine(options.simulate) if options.simulate else None
    path, results = _results(options, simulated)
    facts = Facts(simulated.name if simulated else None, str(path) if path else None)
    send(facts)
    if results and not simulated and library(results) == "MIOpen":
        _set_override(isa_override(results))
    machine = _machine(simulated)
    target = _target(options.device, machine, results)
    if results:
        _require_same_chip(results, target)
    setting = setting_of(_name(options, results), target, machine.value("torch.version"), results)
    gpu = target.gpu
    facts = msgspec.structs.replace(
        facts, setting=setting.name, device=setting.device or target.device,
        gpu=gpu.name.value if gpu else None,
        native_isa=target.native_isa, effective_isa=target.effective_isa,
    )  # fmt: skip
    send(facts)
    lease = None if simulated else _leased(target, setting)
    try:
        purpose = results.purpose if results else "training"
        cases = cases_of(target, setting, purpose, results)
        usual = {case.id: seconds for case, seconds in cases.items()}
        send(msgspec.structs.replace(facts, usual=usual, guardian=guardian().pid))
        setup = Setup(
            RunOptions(purpose=purpose, simulate=options.simulate or None, redact=False), (target,),
            {target.device: (setting,)}, within(options.budget), spawn=True,
            simulated=replace(simulated, fresh=False) if simulated else None,
        )  # fmt: skip
        session = Session(setup, NullJournal(send))
        try:
            session.plan(tuple(cases))
            # The first failure is the verdict. Later cases would only cost time.
            any(session.outcome(case).blocks for case in cases)
        finally:
            session.close(at_once=True)
    finally:
        if lease:
            lease.release()


def _set_override(before: Mapping[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith(OVERRIDE)]:
        del os.environ[name]
    os.environ.update(before)


def _results(
    options: CheckOptions, simulated: Optional[SimulatedMachine]
) -> tuple[Optional[Path], Optional[Results]]:
    if options.results is None:
        try:
            return (RECOMMENDED, read_results(RECOMMENDED)) if not simulated else (None, None)
        except (BadInput, OSError):
            # The user did not name this file, so it can be absent or invalid.
            return None, None
    path = results_file(options.results)
    results = read_results(path)
    if results.simulated != (simulated.name if simulated else None):
        of = f"the simulated machine {results.simulated}" if results.simulated else "a real machine"
        mend = f"add --simulate {results.simulated}" if results.simulated else "leave out --simulate"
        raise BadInput(f"{path}: these results are from {of}; {mend}, or name other results")
    return path, results


def _machine(simulated: Optional[SimulatedMachine]) -> Machine:
    here = detect_devices()
    if here.value("torch.kind") is None:
        raise CheckOver("unknown", "no-torch", "no torch in this Python; see `rocmprobe install`")
    return simulated.machine if simulated else here


def _target(wanted: str, machine: Machine, results: Optional[Results]) -> Device:
    """Return the device to check. For ``auto``, prefer the device in ``results``.

    Raise CheckOver if the device is missing.
    """
    recommended = results.recommendation if results else None
    judged = recommended is None or recommended.verdict != "gpu-not-tested"
    before = device_of(results) if results and judged and wanted == "auto" else None
    try:
        target = find_targets(before or wanted, machine)[0]
    except NothingToTest as error:
        if before:
            text = f"{before}, the device of the results, is gone: {error}"
            raise CheckOver("problem", "no-device", text) from error
        raise CheckOver("nothing", "no-device", str(error)) from error
    for_cpu = machine.value("torch.kind") == "cpu"
    if wanted == "auto" and not before and target.device == "cpu" and (machine.gpus or not for_cpu):
        built = f"torch {machine.value('torch.version')} is built for {'the CPU' if for_cpu else 'a GPU'}"
        text = f"no GPU that torch can use, and {built}; --device cpu tests the CPU"
        raise CheckOver("nothing", "no-device", text)
    return target


def _require_same_chip(results: Results, target: Device) -> None:
    found = {each.native_isa for each in results.outcomes if each.device == target.device and each.native_isa}
    if target.native_isa and found and target.native_isa not in found:
        of = " and ".join(sorted(found))
        text = f"the results are from {of}, but this GPU is {target.native_isa}; name results from such a GPU"
        raise CheckOver("unknown", "error", text)


def _name(options: CheckOptions, results: Optional[Results]) -> str:
    return options.setting or (results and results.recommended) or "default"


def _leased(target: Device, setting: Setting) -> Optional[DeviceLease]:
    """Acquire the lease of the device, so that other runs wait. Raise CheckOver if the device is in use."""
    on_cpu = setting.device == "cpu"
    name = "cpu" if on_cpu else lease_name(target)
    lease = None
    # If the folder for leases cannot be used, other processes cannot have a lease, either.
    with contextlib.suppress(OSError, BadInput):
        lease = DeviceLease(name, Path(CHECK))
        if not lease.take(wait=False):
            other = holder(name)
            who = f"pid {other.pid} ({_words(other.run)})" if other else "another rocmprobe"
            raise CheckOver("busy", "busy", f"{who} uses {name}; nothing was tested")
    found = users(Tree(Path("/")), target.gpu, os.getpid()) if target.gpu and not on_cpu else ()
    if found:
        who = ", ".join(f"pid {each.pid} ({each.name})" if each.name else f"pid {each.pid}" for each in found)
        raise CheckOver("busy", "busy", f"{who} has the GPU open ({found[0].source}); nothing was tested")
    return lease


def _words(run: str) -> str:
    return "another check" if run == CHECK else f"rocmprobe run, {run}"


def setting_of(name: str, target: Device, torch: Optional[str], results: Optional[Results]) -> Setting:
    """Return the setting ``name`` for the backend of ``target``. ``torch`` is the version of PyTorch.

    A run chooses the environment variables of some settings. Take these variables from ``results``. Raise
    BadInput if ``results`` lack the variables, or if the setting is unknown.
    """
    chosen = chosen_setting(results, name, "check")
    if chosen:
        return chosen
    try:
        rows = settings_for(target.backend, f"{name},", torch)
    except BadInput as error:
        raise BadInput(str(error).replace("--settings:", "--setting:", 1)) from error
    setting = next((each for each in rows if each.name == name), rows[-1])
    members = settings_for(target.backend, ",".join((setting.name, *setting.members)), torch)
    if any(each.is_incomplete for each in members if each.name in (setting.name, *setting.members)):
        raise BadInput(
            f"--setting {name}: only a run can derive this setting; name the results of such a run"
        )
    return setting
