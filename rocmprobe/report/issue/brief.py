"""One failure as an issue of at most 30 lines, which a maintainer can read in a minute."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from rocmprobe.knowledge.layers import uses_pytorch_kernels
from rocmprobe.model.baseline import observed_state
from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import BadInput, Outcome, Results, Setting
from rocmprobe.report import text
from rocmprobe.report.escape import code, fence, lines, words
from rocmprobe.report.identity import first_value
from rocmprobe.report.issue.answers import kernel_log, support
from rocmprobe.report.issue.environment import gpu_line, library_version
from rocmprobe.report.issue.failure import Failure, entered_miopen, same_case_outcomes
from rocmprobe.report.issue.repeats import collapse
from rocmprobe.report.repro.script import backend
from rocmprobe.report.repro.short import short_script

MAX_LINES = 30
#: Headings of each tracker's form: problem, script, environment. "" means that the form has no heading for
#: the script, so the script is part of the problem.
_ROCM = ("Problem Description", "Steps to Reproduce", "Operating System, CPU, GPU, ROCm Version")
_HEADINGS = {
    "miopen": _ROCM,
    "rocm": _ROCM,
    "pytorch": ("🐛 Describe the bug", "", "Versions"),
    "ultralytics": ("Bug", "Minimal Reproducible Example", "Environment"),
}
_DEMANDED = {"pytorch": "python -m torch.utils.collect_env", "ultralytics": "yolo checks"}
_DIRECTIONS = {
    "fwd": "forward",
    "bwd-data": "backward to the input",
    "bwd-weights": "backward to the weights",
}
_ENDS = {
    "crash": "kills the process", "hang": "does not return", "wrong": "gives wrong numbers",
    "error": "raises an exception", "flaky": "fails in some attempts", "aborted": "stops the machine",
}  # fmt: skip
_LIBRARIES = {"miopen": "MIOpen", "cudnn": "cuDNN", "onednn": "oneDNN"}
_OPERATORS = {"gemm": "Matrix multiplication", "batch-norm": "Batch norm in training"}
_ENOUGH_EVIDENCE, _MOST_EVIDENCE = 3, 6
_NAMES = 6
#: Output lines that do not help a maintainer, e.g. messages of rocmprobe and source lines of a traceback.
_NOISE = re.compile(
    r"\[rocmprobe\]|MIOpenDriver |MIOpen\(HIP\): (Info|Command)|Current thread|Extension modules|/proc "
    r'|State:|VmRSS:|Threads:|\s*File ".*(/rocmprobe/|/multiprocessing/|<string>|<frozen)|\s+(?!\s|File ")'
)
_NUMBER = re.compile(r"[0-9]+")


def brief(results: Results, failure: Failure, tracker: str) -> str:
    """Return the issue for ``tracker``."""
    problem, steps, environment = (heading and f"### {heading}" for heading in _HEADINGS[tracker])
    prefix = "[Issue]: " if _HEADINGS[tracker] == _ROCM else ""
    note = str(results.options.get("note") or "")
    before = [*title_lines(results, failure, prefix), problem, _sentence(failure)]
    if note:
        before[-1] = f"Note on this run: {words(note.rstrip('.'), 300)}. {before[-1]}"
    after = [*_others(results, failure), "", *([steps] if steps else []), *_steps(results, failure), ""]
    after += [environment, *_environment(results, failure), f"- Report: {_report(results, failure, tracker)}"]
    room = MAX_LINES - _height([*before, *after])
    if room < _ENOUGH_EVIDENCE:
        # Remove the blank lines to save room. Markdown headings and fences need no blank line before them.
        after = [part for part in after if part]
        room = MAX_LINES - _height([*before, *after])
    room = min(max(room, 1), _MOST_EVIDENCE)
    return "\n".join([*before, _evidence(failure, room), *after]) + "\n"


def _height(parts: Sequence[str]) -> int:
    return sum(part.count("\n") + 1 for part in parts) + 2


def title_lines(results: Results, failure: Failure, prefix: str) -> Iterator[str]:
    """Yield the title, after a warning if the machine was simulated."""
    if results.simulated:
        yield "**Do not file this: the machine was simulated, and the failure was injected on purpose.**"
    torch = results.machine.value("torch.version")
    said = "wrong numbers" if failure.state == "wrong" else failure.message[:400]
    what = "" if _is_import(failure) else f"{_title_subject(failure.outcome)}: "
    parts = (what + said, gpu_line(results.machine), torch and f"torch {torch}")
    title = ", ".join(text.one_line(part, 100) for part in parts if part)
    yield f"Title: {code(prefix + title, 250)}"


def _title_subject(outcome: Outcome) -> str:
    kind = outcome.problem.split("-")[0] if outcome.problem else outcome.check
    direction = _DIRECTIONS.get(outcome.direction or "", outcome.direction)
    return " ".join(filter(None, (kind, direction, outcome.dtype)))


def _sentence(failure: Failure) -> str:
    outcome = failure.outcome
    tried = [attempt for attempt in outcome.attempts if attempt.state == failure.state]
    often = f" in {len(tried)} of {text.count(len(outcome.attempts), 'attempt')}" if tried else ""
    directly = "" if outcome.driver == "torch" else ", called without PyTorch,"
    solver = f", with the solver {code(outcome.solver, 80)}" if outcome.solver else ""
    numbers = _numbers(outcome) if failure.state == "wrong" else ""
    ends = _ENDS.get(failure.state, f"ends in {failure.state}")
    return f"{_subject(failure)}{directly} {ends}{often}{solver}{numbers}:"


def _is_import(failure: Failure) -> bool:
    return failure.outcome.driver == "torch" and failure.message.startswith("import torch")


def _subject(failure: Failure) -> str:
    outcome = failure.outcome
    dtype = words(outcome.dtype, 30)
    if _is_import(failure):
        return "`import torch`"
    try:
        problem = parse_problem(outcome.problem or "")
    except BadInput:
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


def _evidence(failure: Failure, room: int) -> str:
    useful = [line for line in failure.outcome.evidence if not _NOISE.match(line)]
    # Cut here, because ``lines`` would add a line with the number of lines that are left out.
    return lines((collapse(useful) or [failure.message])[:room], room)


def _others(results: Results, failure: Failure) -> Iterator[str]:
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
    library = _LIBRARIES.get(backend(results, failure.outcome, failure.setting), "the vendor library")
    changed = failure.setting.env or failure.setting.torch
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
    yield " ".join(parts)


def _is_without_library(setting: Setting, outcome: Outcome) -> bool:
    moved = bool(setting.device) and setting.device != outcome.device
    return setting.bypass or not setting.vendor_library or moved or uses_pytorch_kernels(setting, outcome)


def _gist(outcome: Outcome) -> str:
    """Return the first message without its numbers, to group similar failures."""
    messages = (attempt.message for attempt in outcome.attempts)
    return _NUMBER.sub("", next(filter(None, (*outcome.evidence, *messages)), ""))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _steps(results: Results, failure: Failure) -> Iterator[str]:
    script, why = _script(results, failure)
    has_driver = not failure.driver.startswith("no MIOpenDriver line")
    if script or not (has_driver and failure.outcome.driver != "torch"):
        yield fence(script, "python", 8000) if script else why
    if has_driver:
        yield f"MIOpenDriver: {code(failure.driver, 1500)}"


def _script(results: Results, failure: Failure) -> tuple[str, str]:
    """Return (script, ""), or ("", line to print instead) if there is no script."""
    if _is_import(failure):
        return "", 'Run `python -c "import torch"`.'
    try:
        script = short_script(results, failure.outcome)
    except BadInput:
        if not failure.script:
            return "", "No torch script repeats this. The attached report has the log of the failing process."
        command = code(f"rocmprobe repro results.json {failure.outcome.id}", 250)
        return "", f"Script: attach the output of {command}."
    variables = _assigned(failure.variables)
    return (f"# {variables} python repro.py\n" if variables else "") + script, ""


def _assigned(variables: Mapping[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(text.one_line(value, 100))}" for name, value in variables.items())


def _environment(results: Results, failure: Failure) -> Iterator[str]:
    machine = results.machine
    natives = dict.fromkeys(str(gpu.native_isa.value) for gpu in machine.amd_gpus if gpu.native_isa.value)
    on_amd = backend(results, failure.outcome, failure.setting) == "miopen"
    supported = f". {' '.join(map(support, natives))}" if on_amd and natives else ""
    yield f"- GPU: {words(gpu_line(machine))}{supported}"
    yield (
        f"- OS: {_known(machine.value('os.name'))}, kernel {_known(machine.value('kernel.release'))}; "
        f"CPU: {_known(machine.value('cpu.name'))}"
    )
    rows = (
        ("ROCm", machine.value("rocm.version")),
        ("HIP", first_value(machine, ("hip.version", "torch.hip"))),
        ("MIOpen", library_version(results) if on_amd else None),
        ("PyTorch", machine.value("torch.version")),
        ("Python", machine.value("python.version")),
    )
    software = ", ".join(f"{name} {_known(value)}" for name, value in rows if value)
    variables = _assigned({name: str(fact.value) for name, fact in machine.variables.items()})
    shown = code(variables, 300) if variables else "none"
    empty = entered_miopen(failure) and not failure.setting.inherit_environment
    own = "; MIOpen's databases and caches were empty" if on_amd and empty else ""
    yield f"- {software or 'software unknown'}; variables: {shown}{own}"
    if machine.value("dmesg.events"):
        yield f"- Kernel log: {kernel_log(results)}"


def _known(value: object) -> str:
    return words(text.show(value), 120)


def _report(results: Results, failure: Failure, tracker: str) -> str:
    others = len(failure.others)
    failed = f", {others} other failures" if others > 1 else ", 1 other failure" if others else ""
    demanded = f" Paste the output of `{_DEMANDED[tracker]}` here, too." if tracker in _DEMANDED else ""
    return (
        f"attach `report.html` here ({text.count(len(results.outcomes), 'case')}{failed}, the log). Made by "
        f"rocmprobe {words(results.rocmprobe, 40)}, {words(text.date(results.started), 60)}.{demanded}"
    )
