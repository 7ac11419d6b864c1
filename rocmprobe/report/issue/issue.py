"""One failure as text for the fields of a tracker's issue form.

ROCm/ROCm, ROCm/MIOpen and ROCm/rocm-libraries have the form ``.github/ISSUE_TEMPLATE/issue_report.yml``.
pytorch/pytorch and ultralytics/ultralytics have ``bug-report.yml`` in the same folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from rocmprobe.model.problems import parse_problem, source_of
from rocmprobe.model.results import BadInput, Outcome, Results
from rocmprobe.report import text
from rocmprobe.report.escape import code, cut, fence, folded, joined, lines, words
from rocmprobe.report.issue.answers import answers, support
from rocmprobe.report.issue.brief import brief, title_lines
from rocmprobe.report.issue.environment import collect_env, gpu_line, rocminfo, yolo_checks
from rocmprobe.report.issue.failure import (
    TRACKERS,
    Failure,
    concerning,
    failures,
    gravest,
    same_case_outcomes,
    trials_of,
)  # fmt: skip
from rocmprobe.report.issue.repeats import collapse
from rocmprobe.report.repro.script import backend
from rocmprobe.report.terminal.markdown import banners

#: Largest number of characters of the text. GitHub accepts 65 536, and users add their own text.
LIMIT = 60_000
_LOG = 40_000
_LEAST_LOG = 2_000
_EVIDENCE_LINES = 30
_OTHERS = 20
_COMPONENTS = {"gemm": "rocBLAS", "copy": "HIP", "elementwise": "HIP"}
_DIRECTIONS = {"fwd": "forward", "bwd-data": "backward data", "bwd-weights": "backward weights"}


def issue_block(results: Results, tracker: str, full: bool = False) -> str:
    """Return the gravest failure that concerns ``tracker`` (an entry of ``TRACKERS``) as Markdown.

    The text has at most ``brief.MAX_LINES`` lines. If ``full``, it has all details and at most ``LIMIT``
    characters.
    """
    failure = gravest(results, tracker)
    if failure is None:
        return _nothing(results, tracker)
    if not full:
        return brief(results, failure, tracker)
    forms = {"pytorch": _pytorch, "ultralytics": _ultralytics}
    blocks = list(forms[tracker](results, failure) if tracker in forms else _rocm(results, failure, tracker))
    taken = sum(len(block) + 2 for block in blocks if block is not None)
    log = _log(results, failure, min(_LOG, LIMIT - taken - 500))
    return joined((log if block is None else block for block in blocks), LIMIT)


def _nothing(results: Results, tracker: str) -> str:
    if not failures(results):
        so_far = " so far; it is not finished" if results.partial else ""
        return f"Nothing failed in this run{so_far}: there is nothing to report to a tracker.\n"
    others = [name for name in TRACKERS if concerning(results, name)]
    hint = f"; there are some for: {', '.join(others)}" if others else ", or in another"
    return f"No failure in this run belongs in the tracker {tracker}{hint}.\n"


def _rocm(results: Results, failure: Failure, tracker: str) -> Iterator[Optional[str]]:
    machine = results.machine
    component = "MIOpen" if tracker == "miopen" else _COMPONENTS.get(failure.outcome.rung, "MIOpen")
    yield from title_lines(results, failure, "[Issue]: ")
    yield "### Problem Description"
    yield from _bug(results, failure)
    yield "### Operating System"
    yield _fact(results, "os.name")
    yield "### CPU"
    yield _fact(results, "cpu.name")
    yield "### GPU"
    yield words(f"Other: {gpu_line(machine)}")
    yield "### ROCm Version"
    yield _fact(results, "rocm.version")
    yield "### ROCm Component"
    yield component
    yield "### Steps to Reproduce"
    yield from _reproduction(failure)
    yield "### (Optional for Linux users) Output of /opt/rocm/bin/rocminfo --support"
    yield "rocmprobe does not keep the output of programs. It read this from rocminfo and the kernel driver:"
    yield rocminfo(results)
    yield "### Additional Information"
    yield from _additional(results, failure)
    yield "Software and variables:"
    yield collect_env(results)
    yield None
    yield _made(results)


def _pytorch(results: Results, failure: Failure) -> Iterator[Optional[str]]:
    yield from title_lines(results, failure, "")
    yield "### 🐛 Describe the bug"
    yield from _bug(results, failure)
    yield from _reproduction(failure)
    yield from _additional(results, failure)
    yield None
    yield _made(results)
    yield "### Versions"
    yield (
        "Collected by rocmprobe in the format of `collect_env`. The form asks for the output of "
        "`python -m torch.utils.collect_env` itself: paste it here, too."
    )
    yield collect_env(results)


def _ultralytics(results: Results, failure: Failure) -> Iterator[Optional[str]]:
    yield from title_lines(results, failure, "")
    yield "### Search before asking"
    yield "- [ ] I have searched the Ultralytics YOLO issues and found no similar bug report."
    yield "### Ultralytics YOLO Component"
    yield "Train" if failure.outcome.direction != "fwd" else "Train, Predict"
    yield "### Bug"
    layer = source_of(failure.outcome.problem or "")
    own = f"a layer of YOLO: {words(layer)}" if "YOLO" in layer else "not a layer of YOLO"
    yield f"This fails below Ultralytics, in PyTorch or a library that it calls. What fails is {own}."
    yield from _bug(results, failure)
    yield "### Environment"
    yield "Collected by rocmprobe in the format of `yolo checks`. Paste the output itself here, too."
    yield yolo_checks(results)
    yield "### Minimal Reproducible Example"
    yield from _reproduction(failure)
    yield "### Additional"
    yield from _additional(results, failure)
    yield None
    yield _made(results)
    yield "### Are you willing to submit a PR?"
    yield "- [ ] Yes I'd like to help by submitting a PR!"


def _bug(results: Results, failure: Failure) -> Iterator[str]:
    outcome, setting = failure.outcome, failure.setting
    tried = [attempt for attempt in outcome.attempts if attempt.state == failure.state]
    often = f", in {len(tried)} of {text.count(len(outcome.attempts), 'attempt')}" if tried else ""
    phase = f", in the phase {code(outcome.phase, 40)}" if outcome.phase else ""
    yield (
        f"**What fails:** {_subject(outcome)} ends in **{failure.state}**{often}{phase}; setting "
        f"{code(setting.name, 60)}: {words(setting.reason)}."
    )
    yield lines(collapse(outcome.evidence or (failure.message,)), _EVIDENCE_LINES)
    yield (
        "**What was expected:** the result that float64 gives on the CPU, within the rounding error of "
        f"sums of this length in {words(outcome.dtype, 30)}."
    )
    numbers = _numbers(outcome)
    if numbers:
        yield f"**Why the numbers are wrong, not merely different:** {numbers}"
    if outcome.expected:
        known = " ".join(filter(None, (outcome.expected.reason, outcome.expected.link)))
        yield f"**Known:** {words(known)}"
    yield from banners(results)
    natives = (gpu.native_isa.value for gpu in results.machine.amd_gpus)
    isas = dict.fromkeys(str(native) for native in natives if native)
    if isas and backend(results, outcome, setting) == "miopen":
        yield f"**Support:** {' '.join(map(support, isas))}"


def _subject(outcome: Outcome) -> str:
    driver = (
        "through PyTorch" if outcome.driver == "torch" else "without PyTorch, by calls into the libraries"
    )
    direction = f", {_DIRECTIONS.get(outcome.direction, outcome.direction)}" if outcome.direction else ""
    if outcome.problem is None:
        return f"the check {code(outcome.check, 60)} in {words(outcome.dtype, 30)}, tested {driver},"
    return f"{code(outcome.problem, 120)}{_shapes(outcome.problem)}{direction}, tested {driver},"


def _shapes(problem: str) -> str:
    try:
        fields = parse_problem(problem).as_json()
    except BadInput:
        return ""
    names = ("input", "weight", "stride", "padding", "dilation", "groups")
    listed = ", ".join(f"{name} {_numbered(fields[name])}" for name in names if fields.get(name))
    return f" ({fields['kind']}: {listed})".replace("_", "\\_")


def _numbered(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _numbers(outcome: Outcome) -> str:
    numerics = outcome.numerics
    pairs = [
        f"{words(name, 40)} is {text.number(error)}, the limit {text.number(limit)}"
        for name in ("rms_range", "max_ratio")
        if (error := text.numeric(numerics.get(name))) is not None
        and (limit := text.numeric(numerics.get(f"{name}_limit"))) is not None
    ]
    if outcome.state != "wrong" or not pairs:
        return ""
    again = {True: "; a second run gives the same bits", False: "; a second run gives different bits"}
    bits = numerics.get("repeatable")
    return f"{'; '.join(pairs)}{again[bits] if isinstance(bits, bool) else ''}."


def _reproduction(failure: Failure) -> Iterator[str]:
    if failure.script:
        yield "This needs only PyTorch. It exits with 1 if the numbers are wrong; an exception is not caught:"
        yield fence(failure.script, "python", 6000)
    else:
        yield f"There is no script without rocmprobe: {words(failure.no_script)}"
    if failure.driver.startswith("no MIOpenDriver line"):
        yield f"{words(failure.driver)}."
    else:
        yield "The same with MIOpen's own program:"
        yield fence(failure.driver, "sh", 3000)


def _additional(results: Results, failure: Failure) -> Iterator[str]:
    yield answers(results, failure)
    others = same_case_outcomes(results, failure.outcome).values()
    passing = [each.setting for each in others if each.works]
    if passing:
        yield f"The same problem passes under: {', '.join(code(name, 60) for name in passing[:_OTHERS])}."
    ending = ", ".join(f"{name} {text.show(value)}" for name, value in failure.outcome.ending.items())
    if ending:
        yield f"How the process ended: {words(ending)}."
    if failure.others:
        yield _others(failure)


def _others(failure: Failure) -> str:
    listed = "\n".join(f"- {code(each.id, 200)}: {each.state}" for each in failure.others[:_OTHERS])
    more = len(failure.others) - _OTHERS
    left_out = f"\n- and {more} more" if more > 0 else ""
    amount = text.count(len(failure.others), "other test")
    return folded(
        f"{amount} failed in the same run",
        f"{listed}{left_out}\n\n`rocmprobe repro results.json ID` prints the script for each.",
    )


def _log(results: Results, failure: Failure, limit: int) -> str:
    log = next((trial.log for trial in trials_of(results, failure.outcome) if trial.log.strip()), "")
    if not log:
        return "The process printed nothing."
    # Collapse only a bounded part of the log, because collapsing compares many pairs of lines.
    collapsed = "\n".join(collapse(cut(log, 5 * _LOG).splitlines()))
    inner = fence(collapsed, limit=max(limit, _LEAST_LOG))
    return folded("What the process printed (for every check that ran in it)", inner)


def _fact(results: Results, name: str) -> str:
    fact = results.machine.facts.get(name)
    if fact is None or fact.value is None:
        return f"not known{f' ({words(fact.source, 200)})' if fact and fact.source else ''}"
    stands_in = f" ({words(fact.source, 120)})" if results.simulated else ""
    return f"{words(text.show(fact.value), 200)}{stands_in}"


def _made(results: Results) -> str:
    tested = text.count(len(results.outcomes), "outcome")
    return (
        f"Filled in by rocmprobe {words(results.rocmprobe, 40)} from its measurements on "
        f"{words(text.date(results.started), 60)} ({tested}); read it before you post it."
    )
