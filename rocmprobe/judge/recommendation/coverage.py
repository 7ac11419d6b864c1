"""Coverage of a recommendation: which tests support it, and what was not tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod
from typing import Optional

from rocmprobe.checks import CONVOLUTIONS
from rocmprobe.judge.assessment import BELOW_CONVOLUTION, Assessment
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.failures import counts, counts_sentence
from rocmprobe.judge.recommendation.limits import outcomes_of
from rocmprobe.model.problems import LEVELS, Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS, Outcome
from rocmprobe.text.plain_text import joined
from rocmprobe.text.readable import bytes_, count

#: Part of ``not_covered`` if a run tested convolution alone.
BASICS_UNTESTED = "copies, kernels, matrix products and reductions"
LEVELS_OF_CONFIDENCE = ("low", "medium", "high")

_RULE_OF_THREE = 3
_OWN_SIZES = "rocmprobe run --shapes model.json"
_DTYPES = ("float32", "float16", "bfloat16")
_DIRECTIONS = {
    "fwd": "the forward direction",
    "bwd-data": "the gradient of the input",
    "bwd-weights": "the gradient of the weights",
}


def confidence(run: Evidence, best: Optional[Assessment]) -> str:
    """Return a text with the number of tests behind the recommendation, and with caveats."""
    missing = _missing(run)
    rest = f"; {count(missing, 'case')} of the run without a result" if missing else ""
    if run.results.simulated:
        rest += "; simulated: not run on this GPU"
    if best is None:
        return f"{counted(run)}{rest}"
    if not best.stable:
        rest = f"; not reproducible: repeated convolutions differed, within the limits{rest}"
    problems = {outcome.problem for outcome in best.counted if outcome.problem}
    over = count(len(problems), "problem")
    return f"{counts_sentence(counts(best.counted))} under this configuration, over {over}{rest}"


def counted(run: Evidence) -> str:
    """Return the number of planned cases of the run by result."""
    return counts_sentence(counts(run.outcomes, run.results.not_reached))


def confidence_level(run: Evidence) -> str:
    """Return "high", "medium" or "low", according to how much the run tested.

    The level is "high" if the run has all three qualities, and "medium" if it has two:

    - complete: not interrupted, and with a result for every case
    - broad: level standard or above (or ``--shapes``), without ``--only``, ``--skip`` and ``--problem``
    - real: the device is not simulated
    """
    options = run.results.options
    whole = not run.results.partial and not _missing(run)
    narrowed = any(options.get(name) for name in ("only", "skip")) or (
        options.get("problems") and not options.get("shapes")
    )
    broad = not narrowed and (options.get("level", LEVELS[0]) != LEVELS[0] or bool(options.get("shapes")))
    return LEVELS_OF_CONFIDENCE[max(0, whole + broad + (not run.results.simulated) - 1)]


def _missing(run: Evidence) -> int:
    unanswered = [outcome for outcome in run.outcomes if not outcome.learned]
    return sum(outcome.state in ("aborted", "probe-error") for outcome in unanswered)


def not_covered(
    run: Evidence, best: Optional[Assessment], dtype: str, purpose: str, elsewhere: Iterable[str]
) -> tuple[str, ...]:
    """Return what was not tested under the recommended setting.

    If ``best`` is None, return what was not tested under any setting. For the dtypes ``elsewhere``, the run
    recommends another setting.
    """
    learned = (outcome for outcome in run.on_device if outcome.learned)
    answered = list(outcomes_of(run, best.setting) if best else learned)
    convolved = [each for each in answered if each.check in (*CONVOLUTIONS, "convolution-kinds")]
    checks = {outcome.check for outcome in answered}
    own = [each for each in convolved if best is None or each.setting == best.setting.name]
    return (
        *_larger_sizes([each for each in own if each.dtype == dtype], run),
        *_rare_failures(run, best),
        *_lacking("convolution in", _DTYPES, {outcome.dtype for outcome in convolved}.union(elsewhere)),
        *_directions(convolved, dtype, purpose),
        *_kinds(convolved),
        *_around(run, checks, purpose),
    )


def _larger_sizes(outcomes: list[Outcome], run: Evidence) -> Iterator[str]:
    """Yield the largest batch, channels, pixels and tensor of the tested convolutions, each on its own."""
    problems = [parse_problem(text) for text in {outcome.problem for outcome in outcomes} if text]
    if not problems:
        return
    channels = max(max(problem.in_channels, problem.out_channels) for problem in problems)
    pixels = max((problem.input_size for problem in problems), key=lambda size: (prod(size), size))
    tensor = max(problem.largest_tensor_bytes for problem in problems)
    batch = max(problem.batch for problem in problems)
    offer = "" if run.results.options.get("shapes") else f" (your own sizes: `{_OWN_SIZES}`)"
    yield (
        f"larger sizes: tested up to batch {batch}, {channels} channels, "
        f"{'x'.join(map(str, pixels))} pixels, {bytes_(tensor)} per tensor{offer}"
    )


def _rare_failures(run: Evidence, best: Optional[Assessment]) -> Iterator[str]:
    """Yield how often each case ran under the recommended setting, at level long also the rates found so.

    If no failure shows in n runs, the failure rate is below 3 / n with 95 % confidence (rule of three).
    Source: Hanley and Lippman-Hand, "If nothing goes wrong, is everything all right?", JAMA 249, 1983.
    """
    runs: Counter[tuple[str, ...]] = Counter()
    for each in run.on_device:
        if best and each.works and each.setting == best.setting.name:
            # The ladder repeats a case under another id.
            runs[each.check, each.dtype, each.problem or "", each.direction or ""] += _runs(each)
    fewest: dict[str, int] = {}
    if run.results.options.get("level") == LEVELS[-1]:
        for (check, *_), number in runs.items():
            fewest[check] = min(number, fewest.get(check, number))
    rates = {check: number for check, number in fewest.items() if number > _RULE_OF_THREE}
    words = []
    if rates:
        found = (f"{100 * _RULE_OF_THREE / n:.2g} % in {check} ({n} runs)" for check, n in rates.items())
        above = joined(tuple(found))
        words.append(f"with 95 % probability, this run finds failure rates above {above}")
    others = [number for (check, *_), number in runs.items() if check not in rates]
    if others:
        words.append(f"each {'other ' if rates else ''}case ran {_times(others)}")
    if words:
        yield f"rare failures: {', and '.join(words)}"


def _runs(outcome: Outcome) -> int:
    """Return how often the computation of ``outcome`` ran. The check soak counts steps."""
    counts = [outcome.numerics.get(name) for name in ("repetitions", "calls", "steps")]
    return prod(count for count in counts if type(count) is int)


def _times(numbers: list[int]) -> str:
    """Return the most frequent number in words, and the largest number if it is larger."""
    usual, most = Counter(numbers).most_common(1)[0][0], max(numbers)
    often = "once" if usual == 1 else f"{usual} times"
    return f"{often}, some {most} times" if most > usual else often


def _lacking(what: str, wanted: tuple[str, ...], found: set[str]) -> Iterator[str]:
    lacking = [name for name in wanted if name not in found]
    if lacking:
        yield f"{what} {joined(lacking)}"


def _directions(convolved: list[Outcome], dtype: str, purpose: str) -> Iterator[str]:
    if purpose == "inference":
        yield "training: the run was for inference and tested only the forward direction"
        return
    asked = {outcome.direction for outcome in convolved if outcome.dtype == dtype}
    found = {_DIRECTIONS[name] for name in DIRECTIONS if name in asked}
    yield from _lacking(f"of {dtype} convolution", tuple(_DIRECTIONS.values()), found)


def _kinds(convolved: list[Outcome]) -> Iterator[str]:
    problems = [parse_problem(text) for text in {outcome.problem for outcome in convolved} if text]
    kinds = {
        "1-d": any(problem.rank == 1 for problem in problems),
        "3-d": any(problem.rank == 3 for problem in problems),
        "transposed": any(problem.transposed for problem in problems),
        "depthwise": any(_depthwise(problem) for problem in problems),
    }
    lacking = [words for words, asked in kinds.items() if not asked]
    if lacking:
        yield f"{joined(lacking)} convolution"


def _depthwise(problem: Problem) -> bool:
    return problem.groups == problem.in_channels > 1


def _around(run: Evidence, checks: set[str], purpose: str) -> Iterator[str]:
    options = run.results.options
    if not any(each.check in BELOW_CONVOLUTION and each.learned for each in run.on_device):
        yield BASICS_UNTESTED
    if purpose == "training" and not checks & {"training-step", "batch-norm"}:
        yield "batch norm and a training step"
    for check, words in (("throughput", "speed"), ("memory", "memory")):
        if check not in checks:
            yield words
    level = options.get("level", LEVELS[0])
    if level in LEVELS[:-1] and not options.get("shapes"):
        above = joined(LEVELS[LEVELS.index(level) + 1 :])
        yield f"the problems of level {above}"
    others = sorted({outcome.device for outcome in run.outcomes} - {run.device, "cpu"})
    if others:
        yield f"{joined(others)}: the recommendation is about {run.device}"
    if run.results.simulated:
        yield "the GPU itself: the machine was simulated"
