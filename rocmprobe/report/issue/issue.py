"""Text of an issue about one failure: a script, and about 30 lines that take a minute to read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rocmprobe.checks import DIRECT
from rocmprobe.judge.summary import Summary
from rocmprobe.knowledge.gpus import target
from rocmprobe.knowledge.layers import uses_pytorch_kernels
from rocmprobe.knowledge.settings import LIBRARIES
from rocmprobe.model.baseline import observed_state
from rocmprobe.model.cards import gpu_name, poses
from rocmprobe.model.problems import Problem
from rocmprobe.model.results import Fact, Gpu, Machine, Outcome, Results, Setting
from rocmprobe.report import identity
from rocmprobe.report.escape import code, fence, joined, lines, table, words
from rocmprobe.report.issue.contrast import NO_DRIVER_LINE, contrast
from rocmprobe.report.issue.failure import (
    Failure,
    failures,
    gravest,
    problem_of,
    runs_in_miopen,
    same_case_outcomes,
    tracker,
)
from rocmprobe.report.repro.script import backend
from rocmprobe.report.terminal.markdown import environment
from rocmprobe.text import readable as text

#: Largest number of characters of the text. GitHub accepts 65 536, and users add their own text.
LIMIT = 60_000
_EVIDENCE_LINES, _FULL_EVIDENCE_LINES = 6, 30
_FAILURES = 150
_EVENTS = 10
_NAMES = 6
_DIRECTIONS = {
    "fwd": "forward",
    "bwd-data": "backward to the input",
    "bwd-weights": "backward to the weights",
}
_ENDS = {
    "crash": "kills the process", "hang": "does not return", "wrong": "gives wrong numbers",
    "error": "raises an exception", "flaky": "fails in some attempts", "aborted": "stops the machine",
}  # fmt: skip
_OPERATORS = {"gemm": "Matrix multiplication", "batch-norm": "Batch norm in training"}
#: Output lines that do not help a maintainer, e.g. messages of rocmprobe and source lines of a traceback.
_NOISE = re.compile(
    r"MIOpenDriver |MIOpen\(HIP\): (Info|Command)|Current thread|Extension modules|/proc "
    r'|State:|VmRSS:|Threads:|\s*File ".*(/rocmprobe/|/multiprocessing/|<string>|<frozen)|\s+(?!\s|File ")'
)
_NUMBER = re.compile(r"[0-9]+")


def issue_text(summary: Summary, full: bool = False) -> str:
    """Return the gravest failure of the run as Markdown of at most ``LIMIT`` characters.

    If ``full``, the text also has all failing cases and the environment in full.
    """
    results = summary.results
    failure = gravest(results)
    if failure is None:
        return _nothing(results)
    return joined(_blocks(results, failure, full), LIMIT)


def _nothing(results: Results) -> str:
    if failures(results):
        return (
            "No failure in this run is a bug of PyTorch or the vendor library: "
            "see the findings in report.html.\n"
        )
    so_far = " so far; it is not finished" if results.partial else ""
    return f"Nothing failed in this run{so_far}: there is nothing to report to an issue tracker.\n"


def _blocks(results: Results, failure: Failure, full: bool) -> Iterator[str]:
    if results.simulated:
        yield "**Do not file this: the machine was simulated, and the failure was injected on purpose.**"
    yield _title(results, failure)
    yield f"Tracker: `{tracker(results, failure)}`"
    yield "### Problem"
    note = words(str(results.options.get("note") or "").rstrip("."), 300)
    yield (f"Note on this run: {note}. " if note else "") + _sentence(failure)
    useful = dict.fromkeys(line for line in failure.outcome.evidence if not _NOISE.match(line))
    room = _FULL_EVIDENCE_LINES if full else _EVIDENCE_LINES
    # Cut here, because ``lines`` would add a line with the number of lines that are left out.
    yield lines((list(useful) or [failure.message])[:room], room)
    yield _other_settings(results, failure)
    yield "### Reproduction"
    yield from _reproduction(failure)
    yield from contrast(results, failure)
    yield "### Environment"
    yield "\n".join(_environment(results, failure))
    if full:
        yield from environment(results)
        yield "### All failures"
        rows = [
            (code(each.id, 150), words(observed_state(each)), code(_first_message(each), 80))
            for each in failures(results)
        ]
        yield table(("case", "state", "message"), rows, _FAILURES)


def _title(results: Results, failure: Failure) -> str:
    torch = results.machine.value("torch.version")
    said = "wrong numbers" if failure.state == "wrong" else failure.message[:400]
    what = "" if _is_import(failure) else f"{_title_subject(failure.outcome)}: "
    parts = (what + said, gpu_line(results.machine), torch and f"torch {torch}")
    title = ", ".join(text.one_line(part, 100) for part in parts if part)
    return f"Title: {code(title, 250)}"


def _title_subject(outcome: Outcome) -> str:
    kind = outcome.problem.split("-")[0] if outcome.problem else outcome.check
    direction = _DIRECTIONS.get(outcome.direction or "", outcome.direction)
    return " ".join(filter(None, (kind, direction, outcome.dtype)))


def _sentence(failure: Failure) -> str:
    outcome = failure.outcome
    tried = [attempt for attempt in outcome.attempts if attempt.state == failure.state]
    often = f" in {len(tried)} of {text.count(len(outcome.attempts), 'attempt')}" if tried else ""
    solver = f", with the solver {code(outcome.solver, 80)}" if outcome.solver else ""
    numbers = _numbers(outcome) if failure.state == "wrong" else ""
    ends = _ENDS.get(failure.state, f"ends in {failure.state}")
    directly = ", called without PyTorch," if outcome.check in DIRECT else ""
    return f"{_subject(failure)}{directly} {ends}{often}{solver}{numbers}:"


def _is_import(failure: Failure) -> bool:
    return failure.message.startswith("import torch")


def _subject(failure: Failure) -> str:
    outcome = failure.outcome
    dtype = words(outcome.dtype, 30)
    if _is_import(failure):
        return "`import torch`"
    problem = problem_of(outcome)
    if problem is None:
        named = code(outcome.problem or outcome.check, 120)
        return f"{_OPERATORS.get(outcome.check, f'The check {named}')} in {dtype}"
    direction = _DIRECTIONS.get(outcome.direction or "", outcome.direction)
    return f"{code(problem.kind)} {words(direction or '', 40)} in {dtype} ({_sizes(problem)})"


def _sizes(problem: Problem) -> str:
    arguments = {
        "stride": (problem.stride, 1), "padding": (problem.padding, 0), "dilation": (problem.dilation, 1),
        "output padding": (problem.output_padding, 0),
    }  # fmt: skip
    found = [f"input {_crossed(problem.input_shape)}", f"weight {_crossed(problem.weight_shape)}"]
    for name, (sizes, default) in arguments.items():
        if set(sizes) != {default}:
            found.append(f"{name} {sizes[0] if len(set(sizes)) == 1 else _crossed(sizes)}")
    found += [f"groups {problem.groups}"] if problem.groups != 1 else []
    flags = (("bias", problem.bias), ("channels last", problem.channels_last))
    return ", ".join([*found, *(name for name, holds in flags if holds)])


def _crossed(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def _numbers(outcome: Outcome) -> str:
    """Return the largest error and the limit, both relative to the largest expected value."""
    error, limit = (text.numeric(outcome.numerics.get(name)) for name in ("max_ratio", "max_ratio_limit"))
    if error is None or limit is None or error <= limit:
        return ""
    return (
        f" (largest error {text.number(error)}, limit {text.number(limit)}, both relative to the largest "
        "expected value)"
    )


def _other_settings(results: Results, failure: Failure) -> str:
    settings = {setting.name: setting for setting in results.settings}
    same: list[str] = []
    different: list[str] = []
    with_library: list[str] = []
    without: list[str] = []
    for name, outcome in same_case_outcomes(results, failure.outcome).items():
        state = observed_state(outcome)
        if outcome.works:
            away = _is_without_library(settings[name], outcome)
            (without if away else with_library).append(code(name, 60))
        elif state == failure.state and _gist(outcome) == _gist(failure.outcome):
            same.append(code(name, 60))
        elif state in _ENDS:
            different.append(f"{code(name, 60)} ({state})")
    own = code(failure.setting.name, 60)
    library = LIBRARIES.get(backend(results, failure.outcome, failure.setting), "the vendor library")
    changed = failure.setting.env or failure.setting.unset or failure.setting.torch
    why = words(failure.setting.reason, 150) if changed else "the libraries' defaults"
    parts = [f"Setting: {own} ({why})."]
    if same:
        parts = [f"Fails in the same way under {len(same) + 1} settings: {_listed([own, *same])}."]
    parts += [f"Fails differently under {_listed(different)}."] if different else []
    parts += [f"Works with {library} under {_listed(with_library)}."] if with_library else []
    parts += [f"Works without {library} ({_listed(without)})."] if without else []
    expected = failure.outcome.expected
    if expected:
        parts.append(f"Known: {words(' '.join(filter(None, (expected.reason, expected.link))))}.")
    return " ".join(parts)


def _is_without_library(setting: Setting, outcome: Outcome) -> bool:
    moved = bool(setting.device) and setting.device != outcome.device
    return setting.bypass or not setting.vendor_library or moved or uses_pytorch_kernels(setting, outcome)


def _gist(outcome: Outcome) -> str:
    """Return the first message without its numbers, to group similar failures."""
    return _NUMBER.sub("", _first_message(outcome))


def _first_message(outcome: Outcome) -> str:
    messages = (attempt.message for attempt in outcome.attempts)
    return next(filter(None, (*outcome.evidence, *messages)), "")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _reproduction(failure: Failure) -> Iterator[str]:
    if _is_import(failure):
        yield 'Run `python -c "import torch"`.'
    elif failure.script:
        yield fence(failure.script, "python", 8000)
    else:
        yield f"{words(failure.no_script)}."
    if not failure.driver.startswith(NO_DRIVER_LINE):
        yield f"MIOpenDriver: {code(failure.driver, 1500)}"


def _environment(results: Results, failure: Failure) -> Iterator[str]:
    machine = results.machine
    natives = dict.fromkeys(str(gpu.native_isa.value) for gpu in machine.amd_gpus if gpu.native_isa.value)
    on_amd = backend(results, failure.outcome, failure.setting) == "miopen"
    supported = f". {' '.join(map(_support, natives))}" if on_amd and natives else ""
    yield f"- GPU: {words(gpu_line(machine))}{supported}"
    yield (
        f"- OS: {_known(machine.value('os.name'))}, kernel {_known(machine.value('kernel.release'))}; "
        f"CPU: {_known(machine.value('cpu.name'))}"
    )
    rows = (
        ("ROCm", machine.value("rocm.version")),
        ("HIP", identity.first_value(machine, ("hip.version", "torch.hip"))),
        ("MIOpen", _library_version(results) if on_amd else None),
        ("PyTorch", machine.value("torch.version")),
        ("Python", machine.value("python.version")),
    )
    software = ", ".join(f"{name} {_known(value)}" for name, value in rows if value)
    variables = _assigned({name: str(fact.value) for name, fact in machine.variables.items()})
    shown = code(variables, 300) if variables else "none"
    in_miopen = runs_in_miopen(results, failure.outcome, failure.setting) and failure.outcome.phase != "start"
    empty = in_miopen and not failure.setting.inherit_environment
    own = "; MIOpen's databases and caches were empty" if empty else ""
    yield f"- {software or 'software unknown'}; variables: {shown}{own}"
    if machine.value("dmesg.events"):
        yield f"- Kernel log: {_kernel_log(machine.facts['dmesg.events'])}"
    others = len(failures(results)) - 1
    failed = f", {text.count(others, 'other failure')}" if others else ""
    yield (
        f"- Report: attach `report.html` here ({text.count(len(results.outcomes), 'case')}{failed}, the log)."
        f" Made by rocmprobe {words(results.rocmprobe, 40)}, {words(text.date(results.started), 60)}."
    )


def gpu_line(machine: Machine) -> str:
    """Return names and ISAs of all GPUs in one line."""
    return ", ".join(map(_described, machine.gpus)) or "none"


def _described(gpu: Gpu) -> str:
    native, effective = gpu.native_isa.value, gpu.effective_isa.value
    isa = f"{native} posing as {effective}" if poses(native, effective) else text.show(native)
    return f"{gpu_name(gpu)} ({isa})"


def _support(isa: str) -> str:
    """Return a sentence that says whether AMD and PyTorch have ever listed ``isa`` as supported."""
    row = target(isa)
    if row is None:
        return f"{words(isa, 40)}: rocmprobe does not know this target, nor who supports it."
    listed = (
        f"is or was in ROCm's list of supported GPUs (releases {words(row.rocm, 80)})"
        if row.rocm
        else "was never in ROCm's list of supported GPUs"
    )
    wheels = "" if row.wheels else "; no official PyTorch wheel has code for it"
    return f"{row.gfx} ({row.family}) {listed}{wheels}."


def _library_version(results: Results) -> Any:
    """Return the version of the vendor library, or "" if unknown."""
    elsewhere = {setting.name for setting in results.settings if setting.device}
    versions = {
        trial.library
        for trial in results.trials
        if trial.library and trial.device != "cpu" and trial.setting not in elsewhere
    }
    return results.machine.value("miopen.version") or ", ".join(sorted(versions))


def _known(value: object) -> str:
    return words(text.show(value), 120)


def _assigned(variables: Mapping[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(text.one_line(value, 100))}" for name, value in variables.items())


def _kernel_log(events: Fact) -> str:
    return "; ".join(map(_event, events.value[:_EVENTS])) + "."


def _event(event: Mapping[str, Any]) -> str:
    kind, count, line = (str(event.get(name)) for name in ("kind", "count", "line"))
    return f"{code(kind, 60)}, {words(count, 20)} of it, first {code(line, 200)}"
