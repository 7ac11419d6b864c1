"""``rocmprobe check``: a session whose plan is a few small cases, and whose first failure ends it.

Any step, even reading a file, can block forever. ``engine/watchdog.py`` then kills this process.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

import msgspec.structs

from rocmprobe.checks.tools.case import Case
from rocmprobe.detect.gpus.users import users
from rocmprobe.detect.machine import detect_devices
from rocmprobe.detect.tree import Tree
from rocmprobe.engine.budgets import Budgets
from rocmprobe.engine.check_verdict import Facts, Over
from rocmprobe.engine.journal import NullJournal
from rocmprobe.engine.lease import DeviceLease, holder, lease_name
from rocmprobe.engine.plan import Request, cases_under, native_problems
from rocmprobe.engine.session import Session
from rocmprobe.engine.setup import Setup
from rocmprobe.engine.targets import Device, find_targets
from rocmprobe.engine.watchdog import Pipe
from rocmprobe.judge.assessment import device_of, library
from rocmprobe.judge.recommendation.configuration import isa_override
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.layers import chosen_setting
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.options import RunOptions
from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import BadInput, Machine, NothingToTest, Outcome, Results, Setting
from rocmprobe.model.results_file import RECOMMENDED, read_results, results_file
from rocmprobe.process.guardian import guardian
from rocmprobe.simulate.machines import SimulatedMachine, load_machine

#: Name of the holder in the device lease of `rocmprobe check`.
CHECK = "check"
#: Time limits of a worker as fractions of the budget: for its start, for a first call, for any other call.
_START, _FIRST_CALL, _STEADY = 0.6, 0.4, 0.3
#: Folders for temporary files if Python's usual folders are full.
_OTHER_FOLDERS = ("/dev/shm", "/run")  # noqa: S108
#: Number of bytes written to test whether a disk is full. A worker's databases and kernels need far more.
_TRIED_BYTES = 1 << 16
#: Number of convolution problems tested in float32, and in each other dtype.
_FLOAT32_PROBLEMS, _OTHER_PROBLEMS = 2, 1
#: Simpler checks that run before convolution under every setting, in this order.
_BELOW = ("copy", "elementwise", "gemm")


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


def probe(options: CheckOptions, pipe: Pipe) -> None:
    """Run the check and report its progress through ``pipe``."""
    end = Over()
    try:
        _find_temporary_folder()
        _probe(options, pipe)
    except CheckOver as over:
        end = over.end
    except BadInput as error:
        end = Over(usage=str(error))
    pipe.write(end)


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


def _probe(options: CheckOptions, pipe: Pipe) -> None:
    simulated = load_machine(options.simulate) if options.simulate else None
    path, results = _results(options, simulated)
    facts = Facts(simulated.name if simulated else None, str(path) if path else None)
    pipe.write(facts)
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
    pipe.write(facts)
    lease = None if simulated else _leased(target, setting)
    try:
        purpose = results.purpose if results else "training"
        cases = cases_of(target, setting, purpose, results)
        usual = {case.id: seconds for case, seconds in cases.items()}
        pipe.write(msgspec.structs.replace(facts, usual=usual, guardian=guardian().pid))
        budgets = Budgets(
            _START * options.budget, _FIRST_CALL * options.budget, _STEADY * options.budget, teardown=0.5,
            measure=0.1, tries=1,
        )  # fmt: skip
        setup = Setup(
            RunOptions(purpose=purpose, simulate=options.simulate or None, redact=False), (target,),
            {target.device: (setting,)}, budgets, spawn=True,
            simulated=replace(simulated, fresh=False) if simulated else None,
        )  # fmt: skip
        session = Session(setup, NullJournal(pipe.write))
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
    recommended = results.recommendation if results else None
    return options.setting or (recommended.configuration.setting if recommended else None) or "default"


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
    setting = next(each for each in rows if each.name == name)
    if setting.is_incomplete:
        raise BadInput(
            f"--setting {name}: only a run can derive this setting; name the results of such a run"
        )
    return setting


def cases_of(
    target: Device, setting: Setting, purpose: str, results: Optional[Results]
) -> dict[Case, Optional[float]]:
    """Return the cases to run, in order, each with the seconds of its first call in an earlier run.

    The cases test copy, elementwise operators, gemm, convolution and batch norm. Convolution and gemm are
    also tested in the other dtypes for which ``results`` recommend ``setting``.

    If ``results`` recommend ``setting``, leave out cases that failed there, but keep float32 convolution.
    """
    recommended = results.recommendation if results else None
    follows = recommended is not None and recommended.configuration.setting == setting.name
    known = {outcome.id: outcome for outcome in results.outcomes} if results else {}
    found: dict[Case, Optional[float]] = {}
    for case in _cases(target, setting, purpose, results if follows else None):
        before = _earlier_outcome(case, known)
        failed = before is not None and (before.fails or before.state == "blocked")
        if follows and failed and not (case.check == "convolution" and case.dtype == "float32"):
            continue
        found[case] = before.timings.get("first_call") if before and before.works else None
    return found


def _earlier_outcome(case: Case, known: Mapping[str, Outcome]) -> Optional[Outcome]:
    under_default = case.id.replace(f"/{case.setting}/", "/default/", 1)
    return known.get(case.id) or (known.get(under_default) if case.check in _BELOW else None)


def _cases(target: Device, setting: Setting, purpose: str, results: Optional[Results]) -> Iterator[Case]:
    # Some settings run only if ``default`` fails, unless the options name them.
    options = RunOptions(purpose=purpose, settings=f"{setting.name},")
    chosen = _problems(setting, options, results)

    def simple(check: str, dtype: str = "float32") -> Iterator[Case]:
        yield from cases_under(Request(check, dtypes=(dtype,)), target, setting, options)

    def convolution(problems: Sequence[Problem]) -> Iterator[Case]:
        request = Request("convolution", problems="native", directions=True)
        yield from cases_under(request, target, setting, options, problems)

    for check in _BELOW:
        yield from simple(check)
    yield from convolution([each for each in chosen if each.dtype == (setting.dtype or "float32")])
    yield from simple("batch-norm" if purpose == "training" else "batch-norm-eval")
    for dtype in _other_dtypes(setting, purpose, results):
        yield from simple("gemm", dtype)
        yield from convolution([each for each in chosen if each.dtype == dtype][:_OTHER_PROBLEMS])


def _problems(setting: Setting, options: RunOptions, results: Optional[Results]) -> tuple[Problem, ...]:
    """Return a few small convolution problems, preferably from ``results``."""
    correct = {
        str(each.problem)
        for each in (results.outcomes if results else ())
        if each.check == "convolution" and each.setting == setting.name and each.works
    }
    # Problems from ``results`` already have the setting's memory format and dtype.
    candidates = [parse_problem(text) for text in correct] or native_problems(options, setting)
    taken: list[Problem] = []
    for problem in sorted(candidates, key=lambda problem: (problem.flops, problem.text)):
        most = _FLOAT32_PROBLEMS if problem.dtype == "float32" else _OTHER_PROBLEMS
        if problem not in taken and sum(each.dtype == problem.dtype for each in taken) < most:
            taken.append(problem)
    return tuple(taken)


def _other_dtypes(setting: Setting, purpose: str, results: Optional[Results]) -> tuple[str, ...]:
    per = results.recommendation.per if results and results.recommendation else {}
    found = (key.partition("/") for key, answer in per.items() if answer.get("setting") == setting.name)
    return tuple(dtype for dtype, _, of in found if of == purpose and dtype != "float32")
