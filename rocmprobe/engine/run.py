"""Beginning a run, taking one up again, and reading one back as Results."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from itertools import chain, count
from pathlib import Path
from typing import Any, Optional

from rocmprobe import __version__
from rocmprobe.backends.capi import ORIGINS, Place
from rocmprobe.checks.tools.case import Case
from rocmprobe.detect import detect
from rocmprobe.detect.tree import Tree
from rocmprobe.engine import libraries
from rocmprobe.engine.interpreters import Interpreter, found_again
from rocmprobe.engine.journal import NAME, CannotWrite, Journal, header, records, unblocked
from rocmprobe.engine.lease import hold_for_good
from rocmprobe.engine.options import RunOptions, WrittenTarget
from rocmprobe.engine.records import (
    Derived,
    End,
    Ended,
    Plan,
    Resumed,
    Retry,
    Run,
    Settled,
    from_record,
)  # fmt: skip
from rocmprobe.engine.sampling import Sampler, sampled
from rocmprobe.engine.session import unasked
from rocmprobe.engine.targets import Device, find_targets, targets_of
from rocmprobe.knowledge.settings import search_flags, settings_for
from rocmprobe.knowledge.solvers import Cure, forced_setting, solvers
from rocmprobe.knowledge.visible_devices import in_processor
from rocmprobe.model.baseline import Baseline, baseline_of
from rocmprobe.model.problems import LEVELS, parse_problem
from rocmprobe.model.results import (
    RECOMMENDED,
    SCHEMA_VERSION,
    BadInput,
    Environment,
    Fact,
    Gpu,
    Machine,
    Outcome,
    Results,
    Setting,
    Trial,
    from_json,
    read_results,
    to_json,
)  # fmt: skip
from rocmprobe.model.states import RUN_DIED
from rocmprobe.model.workload import parse_workload
from rocmprobe.process.signals import held
from rocmprobe.simulate.machines import SimulatedMachine, load_machine
from rocmprobe.text.plain_text import quoted

#: The link to the newest run, beside it.
_LATEST = "latest"


def begin(
    options: RunOptions,
    out: Optional[Path],
    verified: Optional[Setting] = None,
    former: Optional[Path] = None,
    interpreter: Optional[Interpreter] = None,
) -> Path:
    """Look at the machine, make the run's folder and write its first record. Returns the folder.

    ``verified`` is a setting that an earlier run derived: it runs with the variables that it had there,
    and no solver is run alone. ``former`` is the results.json of a run that this one is held against.
    ``interpreter`` is another Python whose torch is tested.
    Raises BadInput for an unknown option value, results that are no baseline for this machine, or a folder
    that cannot be written or holds a run already, NothingToTest where the machine lacks the device or torch.
    """
    before = read_results(former, member=interpreter.name if interpreter else "") if former else None
    for text in options.problems:
        parse_problem(text)
    if options.estimate:
        parse_workload(options.estimate)
        if options.purpose == "inference":
            raise BadInput("--estimate: applies to training only; leave out --purpose inference")
    _name_libraries(options.libraries)
    machine = detect(python=interpreter.imports) if interpreter else detect()
    simulation = load_machine(options.simulate) if options.simulate else None
    if simulation:
        options = replace(options, problems=options.problems or simulation.problems)
        if options.driver == "capi" or options.libraries:
            raise BadInput(
                "--simulate: a simulated machine has no libraries to call; leave out --driver capi"
            )
        find_targets("cpu", machine)  # the torch that replaces it must be there
        machine = _simulated(simulation.machine, machine)
    named = simulation.name if simulation else None
    against = baseline_of(before, str(former), machine, named) if before else None
    driver = "torch" if simulation or interpreter else options.driver
    targets, machine = targets_of(options.device, driver, options.libraries, machine)
    torch: Optional[str] = machine.value("torch.version")
    settings = {target.device: _settings(target, options.settings, torch, verified) for target in targets}
    started = now()
    folder = out or new_folder(started, _label(targets))
    try:
        # A journal without its first record would be no run, and be in the way of one.
        with held():
            folder.mkdir(parents=True, exist_ok=True)
            try:
                (folder / NAME).touch(exist_ok=False)
            except FileExistsError as error:
                raise BadInput(
                    f"{folder}: holds a run already; name another folder, or take it up with --resume"
                ) from error
            hold_for_good(folder / NAME)
            journal = Journal(folder, options.redact)
            journal.append(
                "run", rocmprobe=__version__, started=started, options=options, machine=machine,
                targets=targets, settings=settings, simulation=simulation, folder=str(folder), boot=_boot(),
                interpreter=_named_interpreter(interpreter),
            )  # fmt: skip
            if against:
                journal.append("baseline", baseline=against)
    except CannotWrite as error:
        # Half a first record would pass for a run of its own.
        (folder / NAME).unlink()
        raise _unwritable(folder, error, "name another with --out") from error
    except OSError as error:
        raise _unwritable(folder, error, "name another with --out") from error
    if out is None:
        link_latest(folder)
    return folder


def link_latest(folder: Path) -> None:
    """Point the link ``latest``, beside ``folder``, at it."""
    _link(folder, _LATEST)


def _settings(
    target: Device, wanted: str, torch: Optional[str], verified: Optional[Setting]
) -> tuple[Setting, ...]:
    """The settings that users name, and for MIOpen those that force one solver each (only Find obeys)."""
    rows = settings_for(target.backend, wanted, torch, target.drivers)
    if verified:
        return tuple(verified if row.name == verified.name else row for row in rows)
    if target.backend != "miopen":
        return rows
    flags = search_flags("find", torch)
    forced = (replace(forced_setting(solver), search="find", torch=flags) for solver in solvers())
    return (*rows, *forced)


def _named_interpreter(interpreter: Optional[Interpreter]) -> Optional[Interpreter]:
    """Return what the journal keeps of an interpreter: enough to start workers in it again."""
    if interpreter is None:
        return None
    return Interpreter(interpreter.name, interpreter.python, reads_toml=interpreter.reads_toml)


def _name_libraries(wanted: str) -> None:
    """Let the processes of this run know a folder that was named by hand."""
    if wanted and wanted not in ORIGINS:
        os.environ[libraries.VARIABLE] = str(Path(wanted).absolute())


def resume(folder: Path, retry_aborted: bool, wanted_libraries: str = "") -> None:
    """Resume the run in ``folder``: what was in flight when it died becomes ``aborted``, or is run
    again if ``retry_aborted``. ``wanted_libraries`` says again where a folder named by hand is.

    Raises BadInput where the folder holds no run, or one that has not ended, or cannot be written, or where
    the libraries that it calls are gone, or its interpreter.
    """
    _name_libraries(wanted_libraries)
    with _named_in(folder):
        run = _first(folder)
    for target in run["targets"]:
        if target.get("place"):
            libraries.found_again(from_json(Place, target["place"]))
    if run["interpreter"]:
        found_again(run["interpreter"]["name"], run["interpreter"]["python"])
    try:
        if not hold_for_good(folder / NAME):
            raise BadInput(f"{folder}: its run has not ended; wait for it, or end it with Ctrl-C")
        with _named_in(folder):
            _settle(folder, run, retry_aborted)
    except OSError as error:
        raise _unwritable(folder, error, "a run goes on only in its own folder") from error


def _settle(folder: Path, run: Mapping[str, Any], retry_aborted: bool) -> None:
    """Write down what becomes of the cases that were in flight, and that the run goes on."""
    journal = Journal(folder, run["options"]["redact"])
    targets = {target.device: target for target in (from_json(Device, each) for each in run["targets"])}
    begun = {
        record["case"]: from_record(record).question
        for record in records(folder)
        if record["record"] == "intent"
    }
    boots = [record.get("boot") for record in records(folder) if record["record"] in ("run", "resumed")]
    cause, what = (RUN_DIED, "run") if boots[-1] == _boot() else ("machine-died", "machine")
    for case in begun.values():
        settled = journal.find(case.id)
        if retry_aborted and (settled is None or settled.state == "aborted"):
            journal.append("retry", case=case.id)
        elif case.device in targets and journal.in_flight(case.id):
            reason = f"the {what} ended while this was being asked; --retry-aborted asks again"
            journal.outcome(unasked(case, targets[case.device], "aborted", cause, reason))
    journal.append("resumed", at=now(), boot=_boot())


def _boot() -> str:
    """Which start of the machine this is, as a digest: the kernel's own id differs between machines."""
    try:
        identity = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        identity = b""
    return hashlib.sha256(identity).hexdigest()[:12]


def _unwritable(folder: Path, error: OSError, mend: str) -> BadInput:
    return BadInput(f"{folder}: cannot be written ({error.strerror}); {mend}")


def workers(folder: Path, wanted: Optional[int] = None) -> int:
    """Return how many processes test: by default one for each device, as far as the cores go. One process
    serves a device, so more than ``wanted`` or than the devices would have nothing to do."""
    devices = len({target["device"] for target in header(folder)["targets"]})
    return max(1, min(devices, len(os.sched_getaffinity(0)) if wanted is None else wanted))


def planned(folder: Path, cases: Iterable[Case]) -> None:
    """Write down which cases the run holds."""
    journal_of(folder).append("plan", cases=[case.id for case in cases])


def ended(folder: Path) -> None:
    """Write down that the run came to its end."""
    journal_of(folder).append("end", at=now())


def _first(folder: Path) -> Mapping[str, Any]:
    """The first record of a journal, of the right types. Raises BadInput."""
    run = header(folder)
    begun: Run = from_json(Run, run)
    options, devices = begun.options, [target.device for target in begun.targets]
    if options.level not in LEVELS or not devices or not set(devices) <= set(run["settings"]):
        raise BadInput(f"level {quoted(options.level)}: no level, or no setting for each device of a run")
    return run


def results(folder: Path) -> Results:
    """What the journal in ``folder`` holds, not judged yet; ``partial`` where it is not all.

    Raises BadInput where the folder holds no run, or a record is not what it should be.
    """
    with _named_in(folder):
        return _results(_first(folder), records(folder), folder)


@contextlib.contextmanager
def _named_in(folder: Path) -> Iterator[None]:
    """What is wrong with a record names the journal of ``folder``."""
    path = str(folder / NAME)
    try:
        yield
    except BadInput as error:
        if str(error).startswith(path):
            raise
        raise BadInput(f"{path}: {error}; the file is damaged, run again") from error


def _results(run: Mapping[str, Any], found: Iterable[Mapping[str, Any]], folder: Path) -> Results:
    begun: Run = from_json(Run, run)
    outcomes: dict[str, Outcome] = {}
    trials: list[Trial] = []
    expected: set[str] = set()
    derived: dict[str, Cure] = {}
    finished = None
    for record in map(from_record, found):
        if isinstance(record, Settled):
            outcomes[record.outcome.id] = record.outcome
        elif isinstance(record, Retry):
            outcomes.pop(record.case, None)
        elif isinstance(record, Ended):
            trials.append(record.trial)
        elif isinstance(record, Derived) and record.cure.env is not None:
            # Of several devices the first counts: the recommendation is about that.
            derived.setdefault(record.setting, record.cure)
        elif isinstance(record, Plan):
            expected.update(record.cases)
        elif isinstance(record, Resumed):
            outcomes, finished = unblocked(outcomes), None
        elif isinstance(record, End):
            finished = record.at
    texts = dict.fromkeys(outcome.problem for outcome in outcomes.values() if outcome.problem)
    settings = {row.name: row for rows in begun.settings.values() for row in rows}
    for name, cure in derived.items():
        if name not in settings:
            raise BadInput(f"setting: {quoted(name)} is none of this run")
        settings[name] = cure.applied(settings[name])
    asked = {outcome.setting for outcome in outcomes.values() if outcome.state not in ("skipped", "blocked")}
    return Results(
        schema_version=SCHEMA_VERSION,
        rocmprobe=run["rocmprobe"],
        started=run["started"],
        finished=finished,
        partial=finished is None or not expected <= set(outcomes),
        simulated=run["simulation"]["name"] if run["simulation"] else None,
        options={
            **run["options"],
            "folder": run["folder"],
            "targets": [to_json(_written(target)) for target in begun.targets],
        },
        machine=begun.machine,
        settings=tuple(each for name, each in settings.items() if not each.solver or name in asked),
        problems=tuple(parse_problem(text).as_json() for text in texts),
        trials=tuple(trials),
        outcomes=tuple(outcomes.values()),
        telemetry=from_json(SimulatedMachine, run["simulation"]).telemetry
        if run["simulation"]
        else sampled(folder),
        environment=Environment(begun.interpreter.name, begun.interpreter.python)
        if begun.interpreter
        else None,
    )


def machine_of(folder: Path) -> Machine:
    """Return the facts of the machine as the run in ``folder`` found them."""
    begun: Run = from_json(Run, header(folder))
    return begun.machine


def sampler(folder: Path) -> Optional[Sampler]:
    """What samples the sensors during the run in ``folder``; None for a simulated machine, which has none."""
    run = header(folder)
    return None if run["simulation"] else Sampler(folder, run["options"]["redact"], Tree(Path("/")))


def baseline(folder: Path) -> Optional[Baseline]:
    """The former run that the one in ``folder`` is held against, if there is one."""
    found = (record for record in records(folder) if record["record"] == "baseline")
    return next((from_record(each).baseline for each in found), None)


def _written(target: Device) -> WrittenTarget:
    gpu, place = target.gpu or Gpu(), target.place
    return WrittenTarget(
        target.device, target.backend, gpu.name.value, in_processor(gpu), list(target.drivers),
        place.files if place else {},
    )  # fmt: skip


def journal_of(folder: Path) -> Journal:
    """The journal of a begun run, redacting as its options say."""
    return Journal(folder, header(folder)["options"]["redact"])


def now() -> str:
    """Return the time as results have it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_folder(started: str, label: str) -> Path:
    """Make a folder below ``reports``, with a number if two runs begin in one second. Raise BadInput."""
    folder = Path("reports", f"{re.sub('[:-]', '', started)}-{label}")
    others = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    for path in chain([folder], others):
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            continue
        except OSError as error:
            raise _unwritable(folder, error, "name another with --out") from error
    return path


def _label(targets: tuple[Device, ...]) -> str:
    isa = next((target.native_isa for target in targets if target.native_isa), None)
    return str(isa or targets[0].device.partition(":")[0])


def _simulated(machine: Machine, here: Machine) -> Machine:
    """A simulated machine's facts, with those of this one that explain its speeds."""
    own = {
        name: Fact(here.value(name), "this machine, which stands in for the GPU")
        for name in ("cpu.name", "cpu.cores")
        if here.value(name) is not None
    }
    running = Fact(here.value("torch.version"), "the torch that ran in place of the simulated machine's")
    return Machine(machine.gpus, {**machine.facts, **own, "simulation.torch": running}, machine.variables)


def point_recommended_at(folder: Path, results: Results) -> None:
    """Point the link ``recommended``, beside ``latest``, at a run whose configuration programs may use."""
    if is_complete(results) and folder.with_name(_LATEST).is_symlink():
        _link(folder, RECOMMENDED.parent.name)


def is_complete(results: Results) -> bool:
    """Return True for a run on this machine that asked all of its checks and recommends a configuration."""
    recommended = results.recommendation.configuration.setting if results.recommendation else None
    left_out = results.partial or results.options.get("only") or results.options.get("skip")
    return bool(recommended) and not left_out and not results.simulated


def _link(folder: Path, name: str) -> None:
    """Point the link ``name``, beside ``folder``, at it."""
    temporary = folder.with_name(f".{name}-{os.getpid()}")
    # A convenience: a file system without links, or a folder of that name, must not cost the run.
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(folder.name)
        temporary.replace(folder.with_name(name))
