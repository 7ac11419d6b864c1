"""The verdict of ``rocmprobe check`` as Prometheus metrics, for the textfile collector of node exporter.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/. Names:
https://prometheus.io/docs/practices/naming/. The collector reads files that end in ".prom".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rocmprobe.judge.check_verdict import REASONS, STATES, Verdict
from rocmprobe.model.results_file import replace_atomically
from rocmprobe.model.states import STATES as OUTCOMES
from rocmprobe.process.processes import started

Labels = Mapping[str, str]
Samples = Sequence[tuple[Labels, float]]


def text(verdict: Verdict, now: float) -> str:
    """Return the metrics of a verdict. ``now`` is the time of the verdict in seconds since the epoch."""
    lines = [
        *_metric("check_state", "1 if the last check ended in this state, else 0.", [
            ({"state": state}, state == verdict.state) for state in STATES]),
        *_metric("check_reason", "1 if the last check was not ok for this reason, else 0.", [
            ({"reason": reason}, reason == verdict.reason) for reason in REASONS]),
        *_metric("check_duration_seconds", "How long the last check took.", [({}, verdict.seconds)]),
        *_metric("check_budget_seconds", "How long the last check was allowed to take.", [
            ({}, verdict.budget)]),
        *_metric("check_timestamp_seconds", "When the last check ended, in seconds since the epoch.", [
            ({}, now)]),
        *_metric("check_simulated", "1 if the last check was of a simulated machine.", [
            ({}, verdict.simulated is not None)]),
        *_metric("check_question_state", "1 if a test of the last check ended in this state, else 0.",
                 _questions(verdict)),
        *_metric("check_info", "Device, setting and ISAs of the last check.", [({
            "device": verdict.device or "", "setting": verdict.setting or "",
            "native_isa": verdict.native_isa or "", "effective_isa": verdict.effective_isa or "",
        }, 1)]),
        *_metric("build_info", "The version of rocmprobe that wrote this.", [
            ({"version": verdict.rocmprobe}, 1)]),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def write(content: str, path: Path) -> None:
    """Write ``path`` atomically and readable for all users. Raise OSError if writing fails."""
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        _remove_if_dead(left)
    with replace_atomically(path) as temporary:
        temporary.write_text(content, "utf-8")
        temporary.chmod(0o644)


def _remove_if_dead(left: Path) -> None:
    number = left.name.split(".")[-2]
    if number.isdigit() and started(int(number)) is None:
        with contextlib.suppress(OSError):
            left.unlink()


def _questions(verdict: Verdict) -> Samples:
    rows: dict[tuple[str, ...], tuple[Labels, bool]] = {}
    for each in verdict.checked:
        for state in OUTCOMES:
            labels = {
                "check": str(each["check"]), "dtype": str(each["dtype"]),
                "direction": str(each["direction"] or ""), "state": state,
            }  # fmt: skip
            value = state == each["state"]
            key = tuple(labels.values())
            # Merge the results of problems that have equal labels.
            rows[key] = (labels, value or (key in rows and rows[key][1]))
    return list(rows.values())


def _metric(name: str, help_text: str, samples: Samples) -> Iterator[str]:
    if not samples:
        return
    yield f"# HELP rocmprobe_{name} {help_text}"
    yield f"# TYPE rocmprobe_{name} gauge"
    for labels, value in samples:
        inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"rocmprobe_{name}{{{inner}}} {value:.15g}" if inner else f"rocmprobe_{name} {value:.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
