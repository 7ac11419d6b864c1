"""Findings about convolution in the vendor library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rocmprobe.judge.assessment import (
    Assessment,
    case_key,
    convolutions_pass,
    failed,
    failed_convolutions,
    quoted,
)
from rocmprobe.judge.blame import blamed, failure, rung_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.compatibility import answer, of_machine
from rocmprobe.knowledge.settings import first_titles
from rocmprobe.model.problems import SHORT_DTYPES
from rocmprobe.model.results import Finding, Outcome, Setting


def native_convolution(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if convolution in float32 fails under ``default``.

    If float32 was not tested, use the first tested dtype.
    """
    name, dtype = run.library, (run.dtypes or ("float32",))[0]
    settings = run.vendor_library_assessments(dtype)
    broken = _failed_under_default(settings)
    if not broken:
        return
    cures = [each.setting for each in settings if convolutions_pass(each)]
    elsewhere = run.without_library(dtype)
    works = [each.setting.name for each in elsewhere if convolutions_pass(each)]
    failing = f"{sum(bool(failed_convolutions(each)) for each in settings)} of {len(settings)}"
    title = f"Native {dtype} convolution fails under {failing} {name} settings"
    if cures or works:
        cause, layer = _explained(run, broken, cures)
        if layer.startswith(name.lower()):
            title = f"{name} fails on {dtype} convolution ({failing} settings)"
        if cures:
            title += f"; it is correct with {first_titles([cure.name for cure in cures])}"
        else:
            title += f"; without {name} the same convolutions are correct ({first_titles(works)})"
        advice = "Use the recommended configuration, and attach this report to a bug report."
    elif any(failed_convolutions(each) for each in elsewhere):
        cause, layer = blamed(run, broken, rung_layer(run, "copy"))
        title = f"{dtype} convolution fails with and without {name}, so the fault is below {name}"
        advice = (
            "No setting of the library fixes this. See the tests of the lower layers, and check the torch "
            "build."
        )
    else:
        cause, layer = blamed(run, broken)
        title += f"; whether it works without {name} was not tested"
        advice = "Run with the default set of settings, and see the tests of the lower layers."
    evidence = (*quoted(broken), *broken[0].evidence[1:4])
    yield Finding("native-convolution", "error", cause, layer, title, evidence, advice)


def _failed_under_default(settings: Sequence[Assessment]) -> tuple[Outcome, ...]:
    default = next((each for each in settings if each.setting.name == "default"), None)
    return failed_convolutions(default) if default else ()


def _explained(run: Evidence, outcomes: tuple[Outcome, ...], cures: Sequence[Setting]) -> tuple[str, str]:
    """Return the (cause, layer) of failures in the vendor library. ``cures`` are settings without them."""
    cause, layer = blamed(run, outcomes, cured=bool(cures))
    if cause == "wrong-results-unexplained":
        cause = "wrong-results-solver"
    if not layer.startswith("miopen"):
        return cause, layer
    if cures and all(cure.env.get("MIOPEN_DISABLE_CACHE") == "1" for cure in cures):
        return "miopen-db-unusable", "miopen-exec"
    stopped = all(outcome.state in ("crash", "hang") for outcome in outcomes)
    if not stopped or cause not in ("unknown", "gpu-memory-fault-unexplained"):
        return cause, layer
    searching = all(outcome.activity in ("busy", "gpu-busy") for outcome in outcomes)
    if searching and any(cure.env.get("MIOPEN_FIND_MODE") == "2" for cure in cures):
        return "cold-compile-slow", "miopen-find"
    if cures:
        return "miopen-solver-bug", layer
    fits = [answer(of_machine(run.machine, gpu), "silicon-fits-override") for gpu in run.machine.gpus]
    foreign = any(each is not None and not each.holds for each in fits)
    return ("override-isa-mismatch" if foreign else cause), layer


def other_dtypes(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each dtype that fails under ``default`` although float32 works.

    If float32 was not tested, the first tested dtype must work instead.
    """
    first, *others = run.dtypes or ("float32",)
    holds = {each.setting.name for each in run.vendor_library_assessments(first) if convolutions_pass(each)}
    name = run.library
    for dtype in others:
        settings = [each for each in run.vendor_library_assessments(dtype) if each.setting.name in holds]
        outcomes = _failed_under_default(settings)
        if not outcomes:
            continue
        cures = first_titles([each.setting.name for each in settings if convolutions_pass(each)])
        wrong = all(outcome.state == "wrong" for outcome in outcomes)
        cause, layer = blamed(run, outcomes, cured=bool(cures))
        if dtype == "float16" and cause.startswith("wrong-results"):
            cause = "fp16-broken"
        title = (
            f"{dtype} convolution {'computes wrong numbers' if wrong else 'fails'} in {name}; {first} works"
            + (f"; {dtype} works with {cures}" if cures else "")
        )
        advice = f"Stay with {first}, or use {cures}." if cures else f"Stay with {first}."
        yield Finding(f"native-{dtype}", "warning", cause, layer, title, quoted(outcomes), advice)


def problem_matrix(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if problems of the check "problem-matrix" fail under ``default``."""
    default = run.of("problem-matrix")
    broken = failed(default)
    if not broken:
        return
    works: Counter[str] = Counter()
    cases = {case_key(outcome) for outcome in broken}
    for outcome in run.outcomes:
        works[outcome.setting] += outcome.works and case_key(outcome) in cases
    cures = first_titles([setting for setting, count in works.items() if count == len(cases)])
    tested = len(broken) + sum(outcome.works for outcome in default)
    title = f"{len(broken)} of {tested} tests of the problem matrix fail in {run.library} ({_alike(broken)})"
    title += f"; the same tests pass with {cures}" if cures else ""
    advice = "To test one of these problems under all settings: `rocmprobe run --problem TEXT`."
    yield failure(run, "problem-matrix", "warning", title, broken, advice, cured=bool(cures))


def _alike(outcomes: tuple[Outcome, ...]) -> str:
    kinds = dict.fromkeys(str(outcome.problem).partition("-")[0] for outcome in outcomes)
    dtypes = dict.fromkeys(SHORT_DTYPES.get(outcome.dtype, outcome.dtype) for outcome in outcomes)
    directions = dict.fromkeys(str(outcome.direction) for outcome in outcomes)
    return "; ".join(", ".join(words) for words in (kinds, dtypes, directions))
