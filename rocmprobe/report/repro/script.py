"""One outcome as a torch script that does not need rocmprobe, and as a command line for MIOpenDriver.

The script is a template with the constants of the test. It draws the same random numbers as the run, so the
errors are the same. For safety, text from results.json enters the script only as numbers, words from fixed
lists, quoted text and ASCII comments.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jinja2

from rocmprobe.checks import CHECKS, DIRECT
from rocmprobe.checks.tools.computation import Computation, seed_of
from rocmprobe.knowledge.environment import environment, inherited, removed
from rocmprobe.knowledge.layers import uses_pytorch_kernels
from rocmprobe.knowledge.variables import find
from rocmprobe.model.problems import DTYPES, Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS, BadInput, Outcome, Results, Setting
from rocmprobe.model.states import rank
from rocmprobe.report.repro.miopen_driver import batch_norm_line, convolution_line
from rocmprobe.simulate.machines import torch_version
from rocmprobe.text.plain_text import one_line
from rocmprobe.text.redact import census
from rocmprobe.torch_flags import FLAGS, statement

#: Variables with the folders of MIOpen's databases and caches. In a run, each setting starts with empty
#: folders.
_OWN_FOLDERS = ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR")
_LISTED = 5
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def find_outcome(results: Results, case: str) -> Outcome:
    """Return the outcome whose id is ``case``, or the only outcome whose id contains ``case``.

    Raise BadInput if no outcome or several outcomes match. The message lists failures first.
    """
    worst_first = sorted(results.outcomes, key=lambda each: rank(each.state, each.failure))
    outcomes = {outcome.id: outcome for outcome in worst_first}
    if case in outcomes:
        return outcomes[case]
    matches = [name for name in outcomes if case in name]
    if len(matches) == 1:
        return outcomes[matches[0]]
    if matches:
        more = [f"and {len(matches) - _LISTED} more"] if len(matches) > _LISTED else []
        lines = [f"{len(matches)} outcomes match {case!r}; name one:", *_printable(matches), *more]
        raise BadInput("\n  ".join(lines))
    nearest = difflib.get_close_matches(case, outcomes, cutoff=0.3)
    hint = "\n  ".join(["; the nearest are:", *_printable(nearest)]) if nearest else ""
    raise BadInput(f"no outcome matches {case!r}{hint}")


def _printable(names: Sequence[str]) -> list[str]:
    return [one_line(name) for name in names[:_LISTED]]


class _Code(str):
    """Text that enters the script as it is. All other values enter it as Python literals."""


def reproduction(results: Results, case: str) -> str:
    """Return the script, with the MIOpenDriver line among the comments at its top.

    Raise BadInput if ``case`` does not select exactly one outcome that has a script.
    """
    outcome = find_outcome(results, case)
    return script(results, outcome, _remarks(results, outcome))


def script(results: Results, outcome: Outcome, remarks: Sequence[str] = ()) -> str:
    """Return a torch script that repeats the case of ``outcome``, with ``remarks`` as comments.

    The script accepts a device as argument, and exits with 0 if the result is correct. Raise BadInput if no
    script can repeat the outcome.
    """
    setting = setting_of(results, outcome)
    if outcome.check in DIRECT:
        reason = "ran without torch, so no torch script reproduces it"
        raise BadInput(f"{one_line(outcome.id)}: {reason}; {driver_line(results, outcome)}")
    if uses_pytorch_kernels(setting, outcome):
        # Switch the library off, because PyTorch's own kernels compute this layer.
        setting = replace(setting, vendor_library=False)
    variables = dict(child_variables(results, outcome, setting))
    if backend(results, outcome, setting) == "miopen" and not setting.inherit_environment:
        folders = [name for name in _OWN_FOLDERS if name not in setting.env]
        variables.update(dict.fromkeys(folders, _Code("tempfile.mkdtemp()")))
    absent = [name for name in removed_variables(results, setting) if name not in variables]
    return _template().render(
        run_result=_Code(_run_result(results, outcome)),
        remarks=[_Code(remark) for remark in remarks],
        variables=variables,
        absent=absent,
        flags=[_Code(flag) for flag in _flags(results, outcome, setting)],
        device=device_of(outcome, setting),
        dtype=_Code(outcome.dtype),
        seed=seed_of(problem_of(outcome).text if outcome.problem else outcome.dtype),
        **_constants(computation_of(outcome, setting)),
    )


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    templates = jinja2.Environment(  # noqa: S701 - the script is no HTML
        loader=jinja2.PackageLoader(__package__),
        finalize=lambda value: value if isinstance(value, _Code) else ascii(value),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("script.py.jinja")


def _constants(computation: Computation) -> dict[str, object]:
    """Return the constants of ``computation`` by their names in the template."""
    draw, call, layout = computation.draw, computation.call, computation.layout
    options = dict(call.keywords) if isinstance(call, partial) else {}
    measures = {
        _Code(_function(measure).__name__): measure.keywords if isinstance(measure, partial) else {}
        for measure in computation.measures
    }
    return {
        "draw": _Code(draw.func.__name__),
        "shapes": draw.args[0],
        "drawn": {"least": -1, "width": 2, "scales": {}, "non_finite": "", **draw.keywords},
        "layout": layout.__name__ if layout else "",
        "misaligned": computation.misaligned,
        "call": _function(call).__name__,
        "kind": _Code(options.pop("kind", "")),
        "options": options,
        "measures": measures,
        "limits": computation.limits.get("", computation.limits),
        "several": "" not in computation.limits,
        "bounds": computation.bounds,
    }


def _function(call: Callable[..., object]) -> Callable[..., object]:
    return call.func if isinstance(call, partial) else call


def computation_of(outcome: Outcome, setting: Setting) -> Computation:
    """Return the computation that ``outcome`` tested.

    Raise BadInput if a script cannot repeat the computation.
    """
    name = one_line(outcome.id)
    command = f"rocmprobe run --settings {one_line(setting.name)} --only {one_line(outcome.check)}"
    if setting.bypass and (outcome.rung in ("conv", "train") or outcome.problem):
        raise BadInput(
            f"{name}: the setting {one_line(setting.name)} has no stand-alone script, because it needs "
            f"rocmprobe; `{command}` repeats the check"
        )
    check = CHECKS.get(outcome.check)
    if check is None or check.script is None:
        also = ", ".join(sorted(name for name, check in CHECKS.items() if check.script))
        raise BadInput(
            f"{name}: the check {one_line(outcome.check)} has no stand-alone script ({also} have one); "
            f"`{command}` repeats the check"
        )
    if outcome.dtype not in DTYPES.values():
        raise BadInput(f"{name}: {one_line(outcome.dtype)!r} is not a dtype")
    if outcome.direction:
        problem_of(outcome)
        if outcome.direction not in DIRECTIONS:
            raise BadInput(f"{name}: {one_line(outcome.direction)!r} is not a direction")
    return check.script(outcome)


def problem_of(outcome: Outcome) -> Problem:
    if outcome.problem is None:
        raise BadInput(f"{one_line(outcome.id)}: the results name no problem for it; run again")
    return parse_problem(outcome.problem)


def _flags(results: Results, outcome: Outcome, setting: Setting) -> Iterator[str]:
    """Yield the statements that set the flags of torch.backends.

    cuDNN's flags also control MIOpen. Raise BadInput for an unknown flag.
    """
    if backend(results, outcome, setting) == "cudnn" and outcome.dtype == "float32":
        yield "torch.backends.cudnn.allow_tf32 = False"
    for name, value in setting.torch.items():
        if name not in FLAGS:
            raise BadInput(
                f"setting {one_line(setting.name)}: {one_line(name)!r} is not a flag of torch.backends"
            )
        module, _, flag = name.partition(".")
        assigned = statement(name, bool(value))
        if module != "cudnn":
            # An older PyTorch does not have this flag.
            assigned = f'if hasattr(getattr(torch.backends, "{module}", None), "{flag}"): {assigned}'
        yield assigned
    if not setting.vendor_library:
        module = "mkldnn" if device_of(outcome, setting) == "cpu" else "cudnn"
        yield f"torch.backends.{module}.enabled = False"


def child_variables(results: Results, outcome: Outcome, setting: Setting) -> list[tuple[str, str]]:
    """Return name and value of the environment variables that the child process had.

    Leave out redacted values and variables of the dynamic loader.
    """
    inherited = _inherited(results, outcome, setting)
    # Leave out variables of the dynamic loader, because a script would set them too late.
    kept = {name: value for name, value in inherited.items() if not _redacted(value) and not _early(name)}
    variables = {**kept, **setting.env}
    return [(name, str(value)) for name, value in variables.items() if _NAME.fullmatch(name)]


def removed_variables(results: Results, setting: Setting) -> list[str]:
    """Return the variables of the run's environment that the child process did not have."""
    names = dict.fromkeys((*setting.unset, *removed(setting, results.machine.environment)))
    return [name for name in names if _NAME.fullmatch(name) and name not in setting.env]


def _inherited(results: Results, outcome: Outcome, setting: Setting) -> dict[str, str]:
    if device_of(outcome, setting) == "cpu" and not setting.inherit_environment:
        return {}
    owner = environment(setting, results.machine.environment)
    return owner if setting.inherit_environment else inherited(owner)


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
    isa = " as ".join(dict.fromkeys(filter(None, (outcome.native_isa, outcome.effective_isa))))
    where = ", ".join(filter(None, (isa, torch and f"torch {torch}")))
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
        version = None if outcome.check in DIRECT else torch_version(results.machine) or (99, 0)
        immediate = setting.search == "immediate"
        line, why = convolution_line(problem_of(outcome), outcome.direction or "fwd", version, immediate)
    if why:
        return f"no MIOpenDriver line: {why}"
    values = [
        f"{name}={shlex.quote(_ascii(value))}" for name, value in child_variables(results, outcome, setting)
    ]
    absent = [f"-u {name}" for name in removed_variables(results, setting)]
    return " ".join([*(["env", *absent] if absent else []), *values, line])


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
