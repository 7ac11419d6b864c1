"""Findings about convolution in the vendor library."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.assessment import (
    Assessment,
    convolutions_pass,
    failed,
    failed_convolutions,
    in_matrix,
    quoted,
)
from rocmprobe.judge.blame import blamed, rung_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.compatibility import answer, of_machine
from rocmprobe.model.problems import SHORT_DTYPES
from rocmprobe.model.results import Finding, Outcome, Setting


def native_convolution(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if convolution in float32 fails under ``default``.

    If float32 was not tested, use the first tested dtype.
    """
    for dtype in run.dtypes[:1]:
        settings = run.vendor_library_assessments(dtype)
        default = next((each for each in settings if each.setting.name == "default"), None)
        if default is None or not failed_convolutions(default):
            continue
        cures = [each.setting for each in settings if convolutions_pass(each)]
        elsewhere = run.without_library(dtype)
        works = [each.setting.name for each in elsewhere if convolutions_pass(each)]
        if cures or works:
            yield _at_fault(run, dtype, settings, default, cures, works)
        elif any(failed_convolutions(each) for each in elsewhere):
            yield _below(run, dtype, default)
        else:
            yield _alone(run, dtype, settings, default)


def _at_fault(
    run: Evidence,
    dtype: str,
    settings: list[Assessment],
    default: Assessment,
    cures: list[Setting],
    works: list[str],
) -> Finding:
    name = run.library
    cause, layer = blamed(run, failed_convolutions(default), cured=True)
    cause, layer = _explained(run, cause, layer, failed_convolutions(default), cures)
    title = _failure(dtype, name, settings)
    if layer.startswith(name.lower()):
        title = f"{name} fails on {dtype} convolution ({_failing(settings)} settings)"
    if cures:
        title += f"; it is correct with {', '.join(cure.name for cure in cures)}"
    else:
        title += f"; without {name} the same convolutions are correct ({', '.join(works)})"
    advice = "Use the recommended configuration, and attach this report to a bug report."
    return Finding("native-convolution", "error", cause, layer, title, _evidence(default), advice)


def _explained(
    run: Evidence, cause: str, layer: str, outcomes: tuple[Outcome, ...], cures: list[Setting]
) -> tuple[str, str]:
    if not layer.startswith("miopen"):
        return cause, layer
    if cures and all(cure.env.get("MIOPEN_DISABLE_CACHE") == "1" for cure in cures):
        return "miopen-db-unusable", "miopen-exec"
    stopped = all(outcome.state in ("crash", "hang") for outcome in outcomes)
    if not stopped or cause not in ("unknown", "gpu-memory-fault-unexplained"):
        return cause, layer
    searching = all(outcome.activity == "busy" for outcome in outcomes)
    if searching and any(cure.env.get("MIOPEN_FIND_MODE") == "2" for cure in cures):
        return "cold-compile-slow", "miopen-find"
    if cures:
        return "miopen-solver-bug", layer
    machine = run.machine
    fits = [answer(of_machine(machine, gpu), "silicon-fits-override") for gpu in machine.gpus]
    foreign = any(each is not None and not each.holds for each in fits)
    return ("override-isa-mismatch" if foreign else cause), layer


def _below(run: Evidence, dtype: str, default: Assessment) -> Finding:
    name = run.library
    cause, layer = blamed(run, failed_convolutions(default), rung_layer(run, "copy"))
    return Finding(
        "native-convolution", "error", cause, layer,
        f"{dtype} convolution fails with and without {name}, so the fault is below {name}",
        _evidence(default),
        "No setting of the library fixes this. See the tests of the lower layers, and check the torch build.",
    )  # fmt: skip


def _alone(run: Evidence, dtype: str, settings: list[Assessment], default: Assessment) -> Finding:
    name = run.library
    cause, layer = blamed(run, failed_convolutions(default))
    return Finding(
        "native-convolution", "error", cause, layer,
        f"{_failure(dtype, name, settings)}; whether it works without {name} was not tested",
        _evidence(default),
        "Run with the default set of settings, and see the tests of the lower layers.",
    )  # fmt: skip


def _failure(dtype: str, name: str, settings: list[Assessment]) -> str:
    return f"Native {dtype} convolution fails under {_failing(settings)} {name} settings"


def _failing(settings: list[Assessment]) -> str:
    return f"{sum(bool(failed_convolutions(each)) for each in settings)} of {len(settings)}"


def _evidence(default: Assessment) -> tuple[str, ...]:
    outcomes = failed_convolutions(default)
    return quoted(outcomes) + outcomes[0].evidence[1:4]


def other_dtypes(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each dtype that fails under ``default`` although float32 works.

    If float32 was not tested, the first tested dtype must work instead.
    """
    first, *others = run.dtypes or ("float32",)
    holds = {each.setting.name for each in run.vendor_library_assessments(first) if convolutions_pass(each)}
    name = run.library
    for dtype in others:
        settings = [each for each in run.vendor_library_assessments(dtype) if each.setting.name in holds]
        default = next((each for each in settings if each.setting.name == "default"), None)
        if default is None or not failed_convolutions(default):
            continue
        outcomes = failed_convolutions(default)
        cures = [each.setting.name for each in settings if convolutions_pass(each)]
        wrong = all(outcome.state == "wrong" for outcome in outcomes)
        cause, layer = blamed(run, outcomes, cured=bool(cures))
        if dtype == "float16" and cause.startswith("wrong-results"):
            cause = "fp16-broken"
        yield Finding(
            f"native-{dtype}", "warning", cause, layer,
            f"{dtype} convolution {'computes wrong numbers' if wrong else 'fails'} in {name}; {first} works"
            + (f"; {dtype} works with {', '.join(cures)}" if cures else ""),
            quoted(outcomes),
            f"Stay with {first}, or use one of: {', '.join(cures)}." if cures else f"Stay with {first}.",
        )  # fmt: skip


def problem_matrix(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if problems of the check "problem-matrix" fail under ``default``."""
    asked = [outcome for outcome in run.outcomes if in_matrix(outcome)]
    default = [outcome for outcome in asked if outcome.setting == "default"]
    broken = failed(default)
    if not broken:
        return
    same = {(outcome.device, outcome.problem, outcome.direction) for outcome in broken}
    works: dict[str, int] = {}
    for outcome in asked:
        if (outcome.device, outcome.problem, outcome.direction) in same and outcome.works:
            works[outcome.setting] = works.get(outcome.setting, 0) + 1
    cures = [setting for setting, count in works.items() if count == len(same)]
    name = run.library
    cause, layer = blamed(run, broken, cured=bool(cures))
    answered = [outcome for outcome in default if outcome.works] + list(broken)
    yield Finding(
        "problem-matrix", "warning", cause, layer,
        f"{len(broken)} of {len(answered)} tests of the problem matrix fail in {name} ({_alike(broken)})"
        + (f"; the same tests pass with {', '.join(cures)}" if cures else ""),
        quoted(broken),
        "To test one of these problems under all settings: `rocmprobe run --problem TEXT`.",
    )  # fmt: skip


def _alike(outcomes: tuple[Outcome, ...]) -> str:
    kinds = dict.fromkeys(str(outcome.problem).partition("-")[0] for outcome in outcomes)
    dtypes = dict.fromkeys(SHORT_DTYPES.get(outcome.dtype, outcome.dtype) for outcome in outcomes)
    directions = dict.fromkeys(str(outcome.direction) for outcome in outcomes)
    return "; ".join(", ".join(words) for words in (kinds, dtypes, directions))
