"""Results of the solver sweep, in which each of MIOpen's solvers runs alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rocmprobe.judge.assessment import (
    convolutions,
    convolutions_pass,
    device_of,
    failed,
    in_matrix,
    library,
    quoted,
)
from rocmprobe.judge.blame import blamed
from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge import miopen_log
from rocmprobe.knowledge.solvers import DERIVED, solver_of, sweep_result
from rocmprobe.model.results import Finding, Outcome, Results
from rocmprobe.text.plain_text import assignments

FAULTY_SOLVERS = "faulty-solvers"
#: Words for the failures of a solver, the most serious failure first.
_DOES = {
    "crash": "crashes", "hang": "hangs", "wrong": "computes wrong numbers",
    "compile error": "does not compile", "error": "fails", "aborted": "was running when the machine died",
    "flaky": "fails now and then",
}  # fmt: skip
_MOST_NAMES = 4


def of_sweep(results: Results) -> tuple[Outcome, ...]:
    """Return the outcomes of the solver sweep on the device of the recommendation."""
    device = device_of(results)
    return tuple(
        outcome for outcome in results.outcomes if outcome.device == device and solver_of(outcome) is not None
    )


def solver_class(outcome: Outcome) -> str:
    """Return the result of a solver that ran alone, e.g. "ok", "wrong", "compile error" or "does not
    apply"."""
    if outcome.works:
        return "ok"
    if outcome.state == "n/a":
        return "does not apply"
    if outcome.state in ("error", "crash") and miopen_log.parse("\n".join(outcome.evidence)).sources:
        return "compile error"
    return outcome.state


def summary(results: Results) -> str:
    """Return a sentence about the applicable and the failing solvers, or "" if no solver applies."""
    outcomes = of_sweep(results)
    found = sweep_result(outcomes)
    applying = found.faulty.union(*found.sound.values())
    if not applying:
        return ""
    if not found.faulty:
        return f"{library(results)}'s {len(applying)} applicable solvers all give correct results alone"
    broken = failed(outcomes)
    words = [f"{name} {_does(name, broken)}" for name in sorted(found.faulty)]
    more = f" and {len(words) - _MOST_NAMES} more" if len(words) > _MOST_NAMES else ""
    count = f"{len(words)} of {library(results)}'s {len(applying)} applicable solvers"
    return f"{count} {'fails' if len(words) == 1 else 'fail'}: {', '.join(words[:_MOST_NAMES])}{more}"


def _does(name: str, broken: Iterable[Outcome]) -> str:
    classes = {solver_class(outcome) for outcome in broken if solver_of(outcome) == name}
    return next((words for kind, words in _DOES.items() if kind in classes), "fails")


def faulty_solvers(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if solvers fail when they run alone."""
    broken = failed(of_sweep(run.results))
    if not broken:
        return
    cause, layer = blamed(run, broken, cured=True)
    if cause in ("unknown", "gpu-memory-fault-unexplained"):
        cause = "miopen-solver-bug"
    default = run.of("convolution")
    severity = "warning" if failed(default) else "info"
    yield Finding(FAULTY_SOLVERS, severity, cause, layer, summary(run.results), quoted(broken), _advice(run))


def _advice(run: Evidence) -> str:
    derived = run.results.setting(DERIVED)
    if derived is None:
        return f"Run with --settings {DERIVED} too: this setting switches the faulty solvers off."
    if not derived.env:
        return "No set of switches disables the faulty solvers and leaves a correct one."
    switches = " ".join(assignments(derived.env))
    faulty = sweep_result(of_sweep(run.results)).faulty
    off = f"{switches} switches {'it' if len(faulty) == 1 else 'them'} off"
    dtypes = dict.fromkeys(each.dtype for each in convolutions(run.outcomes) if each.setting == derived.name)
    held = [run.assess(derived, dtype, run.results.purpose) for dtype in dtypes]
    asked = [each for each in held if each.counted]
    if not asked:
        return f"{off}. Whether that is enough was not tested."
    if all(convolutions_pass(each) and not any(map(in_matrix, each.against)) for each in asked):
        return f"{off}. With this setting, every tested convolution is correct."
    return f"{off}, but convolution still fails: there is another fault, too."
