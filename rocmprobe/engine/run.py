"""Start, resumption and results of a run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from itertools import chain, count
from pathlib import Path
from typing import Optional

from rocmprobe import output
from rocmprobe.detect import detect
from rocmprobe.detect.tree import Tree
from rocmprobe.engine import lease
from rocmprobe.engine.journal import (
    DAMAGED,
    NAME,
    Against,
    CannotWrite,
    Journal,
    Resumed,
    Retry,
    Run,
    RunJournal,
    is_begun,
    run_of,
)
from rocmprobe.engine.lease import lock
from rocmprobe.engine.outcome import without_trial
from rocmprobe.engine.sampling import NAME as SAMPLES
from rocmprobe.engine.sampling import Sampler, sampled
from rocmprobe.engine.targets import Device, find_targets
from rocmprobe.knowledge.settings import named, search_flags, settings_for, with_cures
from rocmprobe.knowledge.solvers import forced_setting, solvers
from rocmprobe.knowledge.visible_devices import in_processor, mask_of
from rocmprobe.model.baseline import baseline_of, identity
from rocmprobe.model.options import RunOptions, WrittenTarget
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import (
    SCHEMA_VERSION,
    BadInput,
    Fact,
    Gpu,
    Machine,
    Results,
    Setting,
)
from rocmprobe.model.results_file import RECOMMENDED, read_results, to_json
from rocmprobe.model.states import RUN_DIED
from rocmprobe.process.signals import delayed_signals
from rocmprobe.revision import version
from rocmprobe.simulate.machines import load_machine
from rocmprobe.text.plain_text import quoted
from rocmprobe.text.redact import redacted

#: Files that a run writes into its folder later than its journal.
_FILES = ("report.html", "results.json", "junit.xml", SAMPLES)
#: Name of the symbolic link to the newest run.
_LATEST = "latest"


def begin(
    options: RunOptions,
    out: Optional[Path],
    verified: Optional[Setting] = None,
    former: Optional[Path] = None,
) -> Path:
    """Detect the machine, create the run's folder, and write the first record of the journal.

    ``verified`` is a setting from an earlier run. It is used unchanged, and solvers are not tested one by
    one. ``former`` is the results.json to compare to. Raise BadInput if an option, ``former`` or the folder
    cannot be used. Raise NothingToTest if the device or torch is missing.
    """
    before = read_results(former) if former else None
    for text in options.problems:
        parse_problem(text)
    machine = detect()
    simulation = load_machine(options.simulate) if options.simulate else None
    if simulation:
        find_targets("cpu", machine)  # The simulation computes with this torch, so torch must be installed.
        machine = _simulated(simulation.machine, machine)
    named = simulation.name if simulation else None
    targets = find_targets(options.device, machine)
    devices = [target.device for target in targets]
    against = baseline_of(before, str(former), machine, named, devices) if before else None
    settings = {target.device: _settings(target, machine, options.settings, verified) for target in targets}
    if simulation is None:
        lease.check(targets)  # Fail here, not in each case.
    started = now()
    folder = out or Path("reports")
    existed, begun = bool(out and out.exists()), False
    try:
        # Delay signals, because an interrupt could leave a journal without its first record. No other run
        # could start in such a folder.
        with delayed_signals():
            folder = out or _new_folder(started, _label(targets))
            folder.mkdir(parents=True, exist_ok=True)
            for path in (folder / name for name in _FILES):
                if why := output.foreign(path):
                    raise BadInput(f"{path}: {why}; name another folder with --out")
            if not _claim(folder / NAME):
                raise BadInput(
                    f"{folder}: already has a run; name another folder, or continue this run with --resume"
                )
            begun = True
            journal = Journal(folder, options.redact)
            journal.append(
                Run(
                    version(),
                    started,
                    options,
                    machine,
                    targets,
                    settings,
                    simulation,
                    str(folder),
                    _boot(),
                )
            )
            if against:
                journal.append(Against(against))
    except CannotWrite as error:
        # A journal with an incomplete first record would look like a run.
        discard(folder, existed)
        raise _unwritable(folder, error, "name another with --out") from error
    except OSError as error:
        raise _unwritable(folder, error, "name another with --out") from error
    except KeyboardInterrupt:
        if begun:
            discard(folder, existed)
        raise
    if out is None:
        _link(folder, _LATEST)
    return folder


def discard(folder: Path, keep: bool) -> None:
    """Remove a run that tested nothing, and its folder unless ``keep``."""
    with contextlib.suppress(OSError):
        for name in (NAME, SAMPLES):
            (folder / name).unlink(missing_ok=True)
        if not keep:
            folder.rmdir()
        latest = folder.with_name(_LATEST)
        if latest.is_symlink() and not latest.exists():
            latest.unlink()
            others = [path.parent for path in folder.parent.glob(f"*/{NAME}")]
            others = [path for path in others if not path.is_symlink()]
            if others:
                _link(max(others), _LATEST)


def _settings(
    target: Device, machine: Machine, wanted: str, verified: Optional[Setting]
) -> tuple[Setting, ...]:
    """Return the requested settings. Without ``verified``, add one setting per solver of MIOpen."""
    torch: Optional[str] = machine.value("torch.version")
    if verified:
        rows = settings_for(target.backend, wanted, torch)
        # A combined setting that the ladder found is by name, so that only requests that name it use it.
        verified = replace(verified, by_name=False)
        return tuple(verified if row.name == verified.name else row for row in rows)
    rows = with_cures(target.backend, wanted, torch)
    if target.backend != "miopen":
        return rows
    # To hide the other GPUs needs other GPUs, and a variable that names this one.
    number = Fact(int(target.device.partition(":")[2] or 0), "the device's name")
    alone = {}
    if target.gpu and len(machine.gpus) > 1:
        alone = mask_of(machine, replace(target.gpu, index=number))
    rows = tuple(
        replace(row, env={**row.env, **alone}) if row.one_device else row
        for row in rows
        if alone or not row.one_device
    )
    flags = search_flags("find", torch)
    forced = (replace(forced_setting(solver), search="find", torch=flags) for solver in solvers())
    return (*rows, *forced)


def resume(folder: Path, retry_aborted: bool, force: bool = False) -> None:
    """Resume the run in ``folder``.

    Cases that were running become ``aborted``, or run again with ``retry_aborted``. Raise BadInput if the run
    cannot be resumed, e.g. because it is still active, or because the machine changed and ``force`` is False.
    """
    journal = RunJournal(folder)
    run = journal.run
    if run.simulation is None:
        lease.check(run.targets)
    here = detect()
    if run.simulation:
        here = _simulated(run.simulation.machine, here)
    today = identity(redacted(here) if run.options.redact else here, version())
    changes = journal.state.changes(today)
    if changes and not force:
        raise BadInput(
            f"{folder}: the machine changed since the run began ({'; '.join(changes)}), so old and new "
            "outcomes would not belong together; start a new run, or add --force"
        )
    try:
        if not lock(_opened(folder / NAME)):
            raise BadInput(f"{folder}: its run is still active; wait for it, or end it with Ctrl-C")
        # Read again, because another process could have resumed the run until now.
        _settle(RunJournal(folder), retry_aborted, today)
    except OSError as error:
        raise _unwritable(folder, error, "a run continues only in its own folder") from error


def _opened(path: Path, create: int = 0) -> int:
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW | create, 0o644)


def _claim(path: Path) -> bool:
    """Lock the journal of a new run until this process ends. Return False if the folder has a run."""
    descriptor = _opened(path, os.O_CREAT)
    with path.open("rb") as stream:
        if not lock(descriptor) or is_begun(stream.readline()):
            os.close(descriptor)
            return False
    # A run that was killed in its first record has no outcomes.
    os.ftruncate(descriptor, 0)
    return True


def _settle(journal: RunJournal, retry_aborted: bool, identity: Mapping[str, str]) -> None:
    """Record the resumption. Cases that were running get the outcome ``aborted``, or are retried."""
    targets = {target.device: target for target in journal.run.targets}
    failure, what = (RUN_DIED, "run") if journal.state.boot == _boot() else ("machine-died", "machine")
    # A device runs one case at a time. An earlier case without an outcome has a damaged record.
    last = {case.device: case.id for case in journal.state.questions.values()}
    for case in list(journal.state.questions.values()):
        settled = journal.find(case.id)
        lost = settled is None and last[case.device] != case.id
        if lost or (retry_aborted and (settled is None or settled.state == "aborted")):
            journal.append(Retry(case.id))
        elif case.device in targets and settled is None:
            reason = f"the {what} ended while this test was running; --retry-aborted repeats it"
            aborted = without_trial(case, targets[case.device], "aborted", failure, reason)
            journal.outcome(aborted)
    journal.append(Resumed(now(), _boot(), identity))


def _boot() -> str:
    """Return a digest that changes with each boot of the machine."""
    try:
        identity = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        identity = b""
    return hashlib.sha256(identity).hexdigest()[:12]


def _unwritable(folder: Path, error: OSError, mend: str) -> BadInput:
    return BadInput(f"{folder}: cannot be written ({error.strerror}); {mend}")


def workers(folder: Path, wanted: Optional[int] = None) -> int:
    """Return the number of processes that run tests, at most one for each device."""
    devices = len(set(run_of(folder).devices))
    return max(1, min(devices, len(os.sched_getaffinity(0)) if wanted is None else wanted))


def results(journal: RunJournal) -> Results:
    """Return the results in a journal, without findings and recommendation.

    Raise BadInput if the journal has content that no run writes.
    """
    try:
        return _results(journal)
    except BadInput as error:
        raise BadInput(f"{journal.path}: {error}; {DAMAGED}") from error


def _results(journal: RunJournal) -> Results:
    run, state = journal.run, journal.state
    outcomes = state.outcomes
    texts = dict.fromkeys(outcome.problem for outcome in outcomes.values() if outcome.problem)
    settings = {row.name: row for rows in run.settings.values() for row in rows}
    derived: set[str] = set()
    for (_, name), cure in state.derived.items():
        if name not in settings:
            raise BadInput(f"setting: {quoted(name)} is not a setting of this run")
        # Use the derived setting of the first device, because the recommendation is about this device.
        if cure.env is not None and name not in derived:
            settings[name] = cure.applied(settings[name])
            derived.add(name)
    asked = {outcome.setting for outcome in outcomes.values() if outcome.state not in ("skipped", "blocked")}
    for name in asked - set(settings):
        settings[name] = named(settings, name)
    return Results(
        schema_version=SCHEMA_VERSION,
        rocmprobe=run.rocmprobe,
        started=run.started,
        finished=state.finished,
        partial=state.finished is None or not state.planned <= set(outcomes),
        not_reached=len(state.planned - set(outcomes)),
        simulated=run.simulation.name if run.simulation else None,
        options={
            **to_json(run.options),
            "folder": run.folder,
            "targets": [to_json(_written(target)) for target in run.targets],
            **({"changed": list(state.changed)} if state.changed else {}),
            **({"damaged": journal.damaged} if journal.damaged else {}),
        },
        machine=run.machine,
        settings=tuple(
            setting
            for name, setting in settings.items()
            if name in asked or not (setting.solver or setting.by_name)
        ),
        problems=tuple(parse_problem(text).as_json() for text in texts),
        trials=tuple(state.trials),
        outcomes=tuple(outcomes.values()),
        telemetry=run.simulation.telemetry if run.simulation else sampled(journal.path.parent),
    )


def sampler(journal: RunJournal) -> Optional[Sampler]:
    """Return the sensor sampler of a run, or None if the machine is simulated."""
    if journal.run.simulation:
        return None
    return Sampler(journal.path.parent, journal.run.options.redact, Tree(Path("/")))


def _written(target: Device) -> WrittenTarget:
    gpu = target.gpu or Gpu()
    return WrittenTarget(target.device, target.backend, gpu.name.value, in_processor(gpu))


def now() -> str:
    """Return the current time in the format of results (ISO 8601, UTC)."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _new_folder(started: str, label: str) -> Path:
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
    own = {
        name: Fact(here.value(name), "this machine, which computes in place of the GPU")
        for name in ("cpu.name", "cpu.cores")
        if here.value(name) is not None
    }
    running = Fact(here.value("torch.version"), "the torch that ran, not the torch of the simulated machine")
    return Machine(machine.gpus, {**machine.facts, **own, "simulation.torch": running}, machine.variables)


def point_recommended_at(folder: Path, results: Results) -> None:
    """Point the link ``recommended`` to ``folder`` if the run is complete.

    Do nothing if the parent of ``folder`` does not contain the link ``latest``.
    """
    if is_complete(results) and folder.with_name(_LATEST).is_symlink():
        _link(folder, RECOMMENDED.parent.name)


def is_complete(results: Results) -> bool:
    """Return True if the run tested this machine, ran all its checks and recommends a configuration."""
    left_out = results.partial or results.options.get("only") or results.options.get("skip")
    return bool(results.recommended) and not left_out and not results.simulated


def _link(folder: Path, name: str) -> None:
    temporary, link = folder.with_name(f".{name}-{os.getpid()}"), folder.with_name(name)
    if link.exists() and not link.is_symlink():
        return
    # The link is only a convenience. The run must work on a file system without links, too.
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(folder.name)
        temporary.replace(link)
