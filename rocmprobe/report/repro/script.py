"""One outcome as a torch script that does not need rocmprobe, and as a command line for MIOpenDriver.

The script draws the same random numbers as the run, so the errors are the same. For safety, text from
results.json enters the script only as numbers, words from fixed lists, quoted text and ASCII comments.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from keyword import iskeyword
from typing import Any

from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.computation import Computation, seed_of
from rocmprobe.knowledge.layers import uses_pytorch_kernels
from rocmprobe.knowledge.settings import FLAGS
from rocmprobe.knowledge.variables import find
from rocmprobe.model.problems import DTYPES, Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS, BadInput, Outcome, Results, Setting
from rocmprobe.report.repro.code import MAX_WIDTH, lines, packed
from rocmprobe.report.repro.miopen_driver import batch_norm_line, convolution_line
from rocmprobe.report.text import one_line
from rocmprobe.simulate.machines import torch_version
from rocmprobe.text.redact import census

MAX_LINES = 44
#: Variables with the folders of MIOpen's databases and caches. In a run, each setting starts with empty
#: folders.
_OWN_FOLDERS = ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR")
_LISTED = 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def find_outcome(results: Results, case: str) -> Outcome:
    """Return the outcome whose id is ``case``, or the only outcome whose id contains ``case``.

    Raise BadInput if no outcome or several outcomes match.
    """
    outcomes = {outcome.id: outcome for outcome in results.outcomes}
    if case in outcomes:
        return outcomes[case]
    found = [name for name in outcomes if case in name]
    if len(found) == 1:
        return outcomes[found[0]]
    if found:
        more = [f"and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
        raise BadInput(
            "\n  ".join([f"{len(found)} outcomes match {case!r}; name one:", *_printable(found), *more])
        )
    nearest = difflib.get_close_matches(case, outcomes, cutoff=0.3)
    hint = "\n  ".join(["; the nearest are:", *_printable(nearest)]) if nearest else ""
    raise BadInput(f"no outcome matches {case!r}{hint}")


def _printable(names: Sequence[str]) -> list[str]:
    return [one_line(name) for name in names[:_LISTED]]


def reproduction(results: Results, case: str) -> str:
    """Return the script, followed by comments with the run's result and the MIOpenDriver line.

    Raise BadInput if ``case`` does not select exactly one outcome that has a script.
    """
    outcome = find_outcome(results, case)
    notes = [_run_result(results, outcome), *_remarks(results, outcome)]
    return "\n".join([script(results, outcome), *(f"# {note}" for note in notes)])


def script(results: Results, outcome: Outcome) -> str:
    """Return a torch script that repeats the case of ``outcome``.

    The script accepts a device as argument, and exits with 0 if the result is correct. Raise BadInput if no
    script can repeat the outcome.
    """
    setting = setting_of(results, outcome)
    if outcome.driver != "torch":
        raise BadInput(
            f"{one_line(outcome.id)}: ran without torch, so no torch script reproduces it; "
            + driver_line(results, outcome)
        )
    if uses_pytorch_kernels(setting, outcome):
        # Switch the library off, because PyTorch's own kernels compute this layer.
        setting = replace(setting, vendor_library=False)
    computation = computation_of(results, outcome, setting)
    device = device_of(outcome, setting)
    seed = seed_of(problem_of(outcome).text if outcome.problem else outcome.dtype)
    code = [
        *_settled(results, outcome, setting),
        f'device, dtype = sys.argv[1] if sys.argv[1:] else "{device}", torch.{outcome.dtype}',
        *lines(computation, seed),
    ]
    if len(code) > MAX_LINES or max(map(len, code)) > MAX_WIDTH:
        raise BadInput(f"{one_line(outcome.id)}: the test does not fit into a script of {MAX_LINES} lines")
    return "\n".join(code)


def computation_of(results: Results, outcome: Outcome, setting: Setting) -> Computation:
    """Return the computation that ``outcome`` tested.

    Raise BadInput if a script cannot repeat the computation.
    """
    name = one_line(outcome.id)
    if setting.bypass and (outcome.rung in ("conv", "train") or outcome.problem):
        raise BadInput(
            f"{name}: this setting needs rocmprobe (`rocmprobe run --settings {one_line(setting.name)}`); "
            "only the native settings have a script without it"
        )
    check = CHECKS.get(outcome.check)
    if check is None or check.script is None:
        also = ", ".join(sorted(name for name, each in CHECKS.items() if each.script))
        raise BadInput(
            f"{name}: the check {one_line(outcome.check)} has no stand-alone script ({also} have one)"
        )
    if outcome.dtype not in DTYPES.values():
        raise BadInput(f"{name}: {one_line(outcome.dtype)!r} is not a dtype")
    if outcome.direction:
        problem_of(outcome)
        if outcome.direction not in DIRECTIONS:
            raise BadInput(f"{name}: {one_line(outcome.direction)!r} is not a direction")
    library = backend(results, outcome, setting) if setting.vendor_library else ""
    return check.script(outcome, library)


def problem_of(outcome: Outcome) -> Problem:
    if outcome.problem is None:
        raise BadInput(f"{one_line(outcome.id)}: the results name no problem for it; run again")
    return parse_problem(outcome.problem)


def _settled(results: Results, outcome: Outcome, setting: Setting) -> list[str]:
    values = {name: json.dumps(value) for name, value in child_variables(results, outcome, setting)}
    own = backend(results, outcome, setting) == "miopen" and not setting.inherit_environment
    if own:
        values.update({name: "tempfile.mkdtemp()" for name in _OWN_FOLDERS if name not in setting.env})
    code = ["import os, sys, tempfile" if own else "import os, sys" if values else "import sys"]
    if values:
        assigned = [f"{name}={value}" for name, value in values.items()]
        code = packed(f"{code[0]}; os.environ.update(", assigned, ")")
    begun = ["import torch"]
    if backend(results, outcome, setting) == "cudnn" and outcome.dtype == "float32":
        begun.append("torch.backends.cudnn.allow_tf32 = False")
    old, new = flags_of(setting)
    code += ["; ".join([*begun, *old]), *new]
    if not setting.vendor_library:
        module = "mkldnn" if device_of(outcome, setting) == "cpu" else "cudnn"
        code.append(f"torch.backends.{module}.enabled = False")
    return code


def flags_of(setting: Setting) -> tuple[list[str], list[str]]:
    """Return the statements that set cuDNN's flags, and those that set other flags of torch.backends.

    cuDNN's flags also control MIOpen. Raise BadInput for an unknown flag.
    """
    unknown = [name for name in setting.torch if name not in FLAGS]
    if unknown:
        raise BadInput(
            f"setting {one_line(setting.name)}: {one_line(unknown[0])!r} is not a flag of torch.backends"
        )
    values = {FLAGS[name]: bool(value) for name, value in setting.torch.items()}
    old = [
        f"torch.backends.cudnn.{flag} = {value}"
        for (module, flag), value in values.items()
        if module == "cudnn"
    ]
    new = [
        f'if hasattr(getattr(torch.backends, "{module}", None), "{flag}"): '
        f"torch.backends.{module}.{flag} = {value}"
        for (module, flag), value in values.items()
        if module != "cudnn"
    ]
    return old, new


def child_variables(results: Results, outcome: Outcome, setting: Setting) -> list[tuple[str, str]]:
    """Return name and value of the environment variables that the child process had.

    Leave out redacted values and variables of the dynamic loader.
    """
    found = _inherited(results, outcome, setting)
    # Leave out variables of the dynamic loader, because a script would set them too late.
    found = {name: value for name, value in found.items() if not _redacted(value) and not _early(name)}
    found.update(setting.env)
    return [
        (name, str(value)) for name, value in found.items() if _NAME.fullmatch(name) and not iskeyword(name)
    ]


def _inherited(results: Results, outcome: Outcome, setting: Setting) -> dict[str, str]:
    if device_of(outcome, setting) == "cpu" and not setting.inherit_environment:
        return {}
    rows = {name: find(name) for name in results.machine.variables}
    return {
        name: str(results.machine.variables[name].value)
        for name, row in rows.items()
        if setting.inherit_environment or (row is not None and row.keep)
    }


def _early(name: str) -> bool:
    row = find(name)
    return row is not None and row.read == "load"


def _redacted(value: str) -> bool:
    return bool(census(value))


def _remarks(results: Results, outcome: Outcome) -> list[str]:
    setting = setting_of(results, outcome)
    inherited = _inherited(results, outcome, setting)
    left_out = [name for name, value in inherited.items() if _redacted(value) or _early(name)]
    remarks = [f"Also set when the run started: {_ascii(', '.join(left_out))}"] if left_out else []
    return [*remarks, driver_line(results, outcome)]


def _run_result(results: Results, outcome: Outcome) -> str:
    message = next((attempt.message for attempt in reversed(outcome.attempts) if attempt.message), "")
    torch = results.machine.value("torch.version")
    isa = " as ".join(
        dict.fromkeys(str(each) for each in (outcome.native_isa, outcome.effective_isa) if each)
    )
    where = ", ".join(str(each) for each in (isa, torch and f"torch {torch}") if each)
    simulated = f" (simulated: {results.simulated})" if results.simulated else ""
    text = f"In the run{simulated} of {outcome.id} on {where or 'an unknown machine'}: {outcome.state}"
    return _ascii(f"{text}: {message}" if message else text)


def driver_line(results: Results, outcome: Outcome) -> str:
    """Return the MIOpenDriver command line, or "no MIOpenDriver line: " and the reason."""
    setting = setting_of(results, outcome)
    if backend(results, outcome, setting) != "miopen":
        why = "MIOpen does not run here"
    elif setting.bypass or not setting.vendor_library or uses_pytorch_kernels(setting, outcome):
        why = "under this setting nothing calls MIOpen"
    elif outcome.check == "batch-norm":
        line, why = batch_norm_line(outcome.dtype)
    elif outcome.rung in ("batch-norm", "primitives") and outcome.problem is None:
        why = "no command is known for this layer"
    elif outcome.problem is None:
        why = "this check does not call MIOpen"
    else:
        version = (torch_version(results.machine) or (99, 0)) if outcome.driver == "torch" else None
        immediate = setting.search == "immediate"
        line, why = convolution_line(problem_of(outcome), outcome.direction or "fwd", version, immediate)
    if why:
        return f"no MIOpenDriver line: {why}"
    values = [
        f"{name}={shlex.quote(_ascii(value))}" for name, value in child_variables(results, outcome, setting)
    ]
    return " ".join([*values, line])


def setting_of(results: Results, outcome: Outcome) -> Setting:
    """Return the setting of ``outcome``. Raise BadInput if the results do not describe the setting."""
    for setting in results.settings:
        if setting.name == outcome.setting:
            return setting
    raise BadInput(f"{one_line(outcome.id)}: the results do not describe its setting; run again")


def backend(results: Results, outcome: Outcome, setting: Setting) -> str:
    """Return the name of the vendor library for the device of ``outcome``, e.g. "miopen"."""
    if (setting.device or outcome.device) == "cpu":
        return "onednn"
    targets: Any = results.options.get("targets") or ()
    backends = {target.get("device"): target.get("backend") for target in targets}
    return str(backends.get(outcome.device, "miopen"))


def device_of(outcome: Outcome, setting: Setting) -> str:
    """Return torch's name for the device of ``outcome``.

    Raise BadInput if the name in the results is invalid.
    """
    device = setting.device or outcome.device
    if not re.fullmatch(r"[a-z]+(:[0-9]+)?", device):
        raise BadInput(f"{one_line(outcome.id)}: {one_line(device)!r} is not a torch device")
    return device


def _ascii(text: str) -> str:
    return re.sub(r"[^ -~]+", " ", one_line(text, 400).replace("…", "..."))
