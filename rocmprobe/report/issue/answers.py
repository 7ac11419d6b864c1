"""Answers to questions that maintainers ask about failures, taken from the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rocmprobe.judge.assessment import MEASUREMENTS
from rocmprobe.knowledge.gpus import OVERRIDE, target
from rocmprobe.model.results import Fact, Outcome, Results
from rocmprobe.report.escape import code, words
from rocmprobe.report.identity import overridden
from rocmprobe.report.issue.failure import Failure, same_case_outcomes
from rocmprobe.report.repro.script import backend

_EVENTS = 10
_SETTINGS = 12
_CLEAN, _AS_FOUND = "clean-db", "as-found"


def answers(results: Results, failure: Failure) -> str:
    """Return the questions that maintainers ask, each with an answer from the run."""
    others = same_case_outcomes(results, failure.outcome)
    if backend(results, failure.outcome, failure.setting) != "miopen":
        return f"**Does it work with the vendor library off?** {_library_off(results, others)}"
    answers = (
        ("Does it work with MIOpen off?", _library_off(results, others)),
        ("Which find mode?", _find_mode(results, failure, others)),
        ("A log?", _log(results, failure)),
        ("Does it still fail after the caches are cleared?", _caches(failure, others)),
        ("On a supported GPU?", _supported(results, others)),
        ("Was `HSA_OVERRIDE_GFX_VERSION` set?", _override(results)),
        ("What does dmesg say?", kernel_log(results)),
    )
    return "\n".join(f"{number}. **{asked}** {answer}" for number, (asked, answer) in enumerate(answers, 1))


def _library_off(results: Results, others: Mapping[str, Outcome]) -> str:
    without = [each.name for each in results.settings if not each.vendor_library or each.bypass]
    found = _states(others, without)
    if not found:
        return "Not tested in this run."
    return f"The same test under settings that do not use the library: {found}."


def _states(others: Mapping[str, Outcome], names: Iterable[str]) -> str:
    found = [others[name] for name in names if name in others]
    return ", ".join(f"{code(each.setting, 60)} {_came_to(each)}" for each in found[:_SETTINGS])


def _came_to(outcome: Outcome) -> str:
    known = outcome.expected
    return f"{outcome.state} (observed: {known.state})" if known else outcome.state


def _find_mode(results: Results, failure: Failure, others: Mapping[str, Outcome]) -> str:
    name = "MIOPEN_FIND_MODE"
    mode = failure.variables.get(name)
    answer = code(f"{name}={mode}", 60) if mode else f"MIOpen's default: {code(name)} was not set"
    if failure.outcome.solver:
        answer += f"; the solver was {code(failure.outcome.solver, 80)}"
    elif failure.outcome.driver == "torch":
        answer += "; no solver was named in the log"
    searching = [each.name for each in results.settings if each.search]
    found = _states(others, searching)
    return f"{answer}. " + (f"With other find modes: {found}." if found else "No other find mode was tested.")


def _log(results: Results, failure: Failure) -> str:
    if results.simulated:
        return "Folded below, and partly synthetic: the machine was simulated, and no MIOpen ran."
    if failure.outcome.check in MEASUREMENTS:
        return "Folded below, without MIOpen's own log, which is off during measurements."
    return (
        "Folded below, recorded with `MIOPEN_LOG_LEVEL=5 MIOPEN_ENABLE_LOGGING_CMD=1`; for level 6, "
        "which rocmprobe does not keep, run the script with "
        "`MIOPEN_ENABLE_LOGGING=1 MIOPEN_ENABLE_LOGGING_CMD=1 MIOPEN_LOG_LEVEL=6`."
    )


def _caches(failure: Failure, others: Mapping[str, Outcome]) -> str:
    answer = "The failing process had its own user database and kernel cache, empty when the run began."
    if failure.setting.inherit_environment:
        answer = "The failing process used the user's own databases and caches."
    if _CLEAN in others:
        answer += f" With find-db and kernel cache off ({code(_CLEAN)}): {_came_to(others[_CLEAN])}."
    if _AS_FOUND in others:
        answer += f" With the user's own ({code(_AS_FOUND)}): {_came_to(others[_AS_FOUND])}."
    return answer


def _supported(results: Results, others: Mapping[str, Outcome]) -> str:
    parts = [support(str(gpu.native_isa.value)) for gpu in results.machine.amd_gpus if gpu.native_isa.value]
    if "cpu" in others:
        parts.append(f"The same on the CPU: {_came_to(others['cpu'])}.")
    parts.append("No other GPU was available to compare with.")
    return " ".join(dict.fromkeys(parts))


def support(isa: str) -> str:
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


def _override(results: Results) -> str:
    variable = results.machine.variables.get(OVERRIDE)
    posing = "; ".join(
        f"the GPU is {code(native, 40)}, the runtime treats it as {code(effective, 40)}"
        for native, effective in overridden(results.machine)
    )
    answer = f"Yes, to {code(str(variable.value), 40)}" if variable else "No"
    return f"{answer}; {posing}." if posing else f"{answer}."


def kernel_log(results: Results) -> str:
    """Return the GPU's events in the kernel log, or the reason why the log was not read."""
    fact = results.machine.facts.get("dmesg.events", Fact())
    if fact.value is None:
        why = f" ({words(fact.source, 120)})" if fact.source else ""
        return f"Not read{why}: as root, `dmesg | grep -iE 'amdgpu|kfd'` shows it."
    if not fact.value:
        return "No GPU fault, reset or rejection when the run began."
    return "; ".join(map(_event, fact.value[:_EVENTS])) + "."


def _event(event: Mapping[str, Any]) -> str:
    kind, count, line = (str(event.get(name)) for name in ("kind", "count", "line"))
    return f"{code(kind, 60)}, {words(count, 20)} of it, first {code(line, 200)}"
