"""Findings about the size of the image from which convolution fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rocmprobe.judge.assessment import AS_FOUND, case_key, failed, quoted
from rocmprobe.judge.blame import failure
from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.settings import first_titles
from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import Finding, Outcome
from rocmprobe.model.size_search import same_but_size, size_of
from rocmprobe.text.plain_text import joined

CHECK = "convolution-at-size"


@dataclass(frozen=True)
class Boundary:
    """The tested sizes of one problem and direction, in pixels, and the outcomes next to the boundary."""

    problem: Problem
    failing: tuple[int, ...]
    working: tuple[int, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def words(self) -> str:
        """Predicate of "Convolution ...", which says only what was tested."""
        first, below = self.failing[0], [size for size in self.working if size < self.failing[0]]
        if len(below) < len(self.working):
            return f"fails with {_listed(self.failing)} pixels; {_listed(self.working)} work"
        if below and below[-1] == first - 1:
            return f"fails from {first} pixels on; {below[-1]} and fewer work"
        works = f"; {below[-1]} work" if below else ""
        return f"fails with {_listed(self.failing)} pixels{works}"


def sizes(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if convolution fails with large images only, in the clean or the user's environment."""
    for setting, where in (("default", ""), (AS_FOUND, " in your own environment")):
        found = boundaries(run, setting)
        if not found:
            continue
        # A bisected problem says most, then the smallest image that fails.
        first = min(found, key=lambda each: (_gap(each), each.failing[0]))
        cases = {case_key(each) for each in failed(run.of(CHECK, setting))}
        cures = [
            name
            for name in run.under
            if name != setting and cases <= {case_key(each) for each in run.of(CHECK, name) if each.works}
        ]
        title = f"Convolution{where} {first.words}" + (
            f"; all work with {first_titles(cures)}" if cures else ""
        )
        broken = tuple(outcome for each in found for outcome in each.outcomes if outcome.fails)
        advice = "Use a configuration that was tested with these sizes. Smaller images prove nothing here."
        name = "convolution-sizes" + (f"-{AS_FOUND}" if where else "")
        finding = failure(run, name, "error", title, broken, advice, cured=bool(cures))
        lines = tuple(
            f"{setting}, {each.outcomes[0].direction}, {each.problem.words}: {each.words}" for each in found
        )
        yield replace(finding, evidence=(*lines, *quoted(broken)))


def boundaries(run: Evidence, setting: str) -> list[Boundary]:
    """Return a boundary for each problem and direction that fails under ``setting``.

    Leave out dtypes and directions in which small images fail, too.
    """
    small = {(each.device, each.dtype, each.direction) for each in failed(run.of("convolution", setting))}
    groups: list[list[tuple[Problem, Outcome]]] = []
    for outcome in run.of(CHECK, setting):
        if not (outcome.fails or outcome.works) or not outcome.problem:
            continue
        if (outcome.device, outcome.dtype, outcome.direction) in small:
            continue
        problem = parse_problem(outcome.problem)
        for group in groups:
            known, other = group[0]
            alike = (outcome.device, outcome.direction) == (other.device, other.direction)
            if alike and same_but_size(known, problem):
                group.append((problem, outcome))
                break
        else:
            groups.append([(problem, outcome)])
    return [_boundary(group) for group in groups if any(outcome.fails for _, outcome in group)]


def _boundary(group: Sequence[tuple[Problem, Outcome]]) -> Boundary:
    ordered = sorted(group, key=lambda pair: size_of(pair[0]))
    failing = [(problem, outcome) for problem, outcome in ordered if outcome.fails]
    working = [(problem, outcome) for problem, outcome in ordered if outcome.works]
    first = size_of(failing[0][0])
    below = [outcome for problem, outcome in working if size_of(problem) < first]
    return Boundary(
        failing[0][0],
        tuple(size_of(problem) for problem, _ in failing),
        tuple(size_of(problem) for problem, _ in working),
        (failing[0][1], *below[-1:]),
    )


def _gap(each: Boundary) -> int:
    """Return the number of pixels between the smallest failing size and the next working size."""
    below = [size for size in each.working if size < each.failing[0]]
    return each.failing[0] - (below[-1] if below else 0)


def _listed(numbers: Sequence[int]) -> str:
    return joined([str(number) for number in numbers])
