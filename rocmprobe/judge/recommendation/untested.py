"""Texts and verdicts for runs that left out a GPU, settings or convolution."""

from __future__ import annotations

from typing import Optional

from rocmprobe.checks import CONVOLUTIONS, DIRECT
from rocmprobe.judge.assessment import failed
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.failures import counts, counts_sentence
from rocmprobe.judge.findings import direct
from rocmprobe.judge.findings.torch_unusable import failed_imports, import_title
from rocmprobe.judge.recommendation.coverage import counted
from rocmprobe.knowledge.visible_devices import in_processor
from rocmprobe.model.results import (
    NATIVE,
    RUNGS,
    Configuration,
    Gpu,
    Outcome,
    Recommendation,
    Setting,
)
from rocmprobe.text.plain_text import joined, sentence_case

_KINDS = {"cpu": "the CPU", "cuda": "CUDA", "rocm": "ROCm"}
_WAYS = {"bypass": "the bypass", "vendor-off": "vendor-off", "cpu": "the CPU"}
_FAILS = {
    "crash": "crashes",
    "hang": "hangs",
    "wrong": "gives wrong results",
    "flaky": "gives different results when repeated",
    "aborted": "stops the machine",
}


def untested_gpu(run: Evidence) -> Optional[Recommendation]:
    """Return a recommendation if the run did not test PyTorch on a GPU that the machine has, else None."""
    gpu = _gpu(run)
    if gpu and direct.without_torch(run.results):
        return Recommendation(
            "gpu-not-tested",
            f"Your {_name(gpu)} was not tested with PyTorch: this Python has no torch. "
            f"{direct.sentence(run)}",
            Configuration(command="rocmprobe install"),
            confidence=f"{counted(run)}, all without PyTorch",
        )
    if gpu is None or not _on_cpu(run) or run.results.options.get("device") not in ("auto", "all"):
        return None
    kind = run.machine.value("torch.kind")
    if kind != "rocm":
        reason = f"this torch is built for {_KINDS.get(str(kind), 'another device')}"
    elif "hidden" in gpu.index.source:
        reason = f"it is {gpu.index.source}"
    else:
        reason = "this torch does not detect it"
    return Recommendation(
        "gpu-not-tested",
        f"Your {_name(gpu)} was not tested: {reason}.",
        Configuration(
            command="rocmprobe detect" if kind == "rocm" else "rocmprobe install",
            layers=("to test the CPU itself: `rocmprobe run --device cpu`",),
        ),
        confidence=f"{counted(run)}, all on the CPU",
    )


def about_the_cpu(run: Evidence) -> str:
    """Return a sentence that says that the result is about the CPU, or "" if a GPU was tested."""
    if not _on_cpu(run):
        return ""
    gpu, wanted = _gpu(run), run.results.options.get("device")
    if gpu is None:
        return "No GPU found: this result is about your CPU. " if wanted in ("auto", "all") else ""
    return f"This result is about your CPU, not about your {_name(gpu)}. "


def _on_cpu(run: Evidence) -> bool:
    return not run.results.simulated and run.device == "cpu"


def _gpu(run: Evidence) -> Optional[Gpu]:
    return min(run.machine.amd_gpus, key=in_processor, default=None)


def _name(gpu: Gpu) -> str:
    return str(gpu.name.value or gpu.native_isa.value or "GPU")


def has_convolution_outcome(run: Evidence) -> bool:
    """Return True if a convolution check has an outcome (even blocked) on the recommendation's device."""
    return any(outcome.check in CONVOLUTIONS for outcome in run.on_device)


def untested_settings(run: Evidence, dtype: str) -> tuple[Setting, ...]:
    """Return the settings under which an incomplete run tested no convolution of ``dtype``.

    A run with ``--only`` or ``--skip`` is incomplete, too.
    """
    if not (run.results.partial or run.results.options.get("only") or run.results.options.get("skip")):
        return ()
    tested = {
        outcome.setting
        for outcome in run.on_device
        if outcome.check in CONVOLUTIONS and outcome.dtype == dtype
    }
    return tuple(row for row in run.settings if not _optional(row) and row.name not in tested)


def _optional(setting: Setting) -> bool:
    return bool(setting.solver or setting.by_name or setting.derived or setting.changes_problems)


def not_judged(run: Evidence, untested: tuple[Setting, ...]) -> str:
    """Return a text about what passed, what failed and what was not tested, for a run without a verdict."""
    if broken := failed_imports(run):
        return f"{import_title(run, broken)}. Nothing was tested."
    if has_convolution_outcome(run):
        return f"{lowest_failure_sentence(run)}{_left_out(run, untested)}"
    ran = [each for each in run.on_device if each.learned]
    return f"{counts_sentence(counts(ran)) if ran else 'No check could run'}; convolution was not tested."


def _left_out(run: Evidence, untested: tuple[Setting, ...]) -> str:
    ways = [words for verdict, words in _WAYS.items() if any(row.verdict == verdict for row in untested)]
    if not ways:
        ways = [f"{len(untested)} settings of the vendor library" if len(untested) > 1 else untested[0].name]
    return f" {sentence_case(joined(ways))} {_was(ways)} not tested."


def _was(ways: list[str]) -> str:
    return "was" if len(ways) == 1 and not ways[0][0].isdigit() else "were"


def lowest_failure_sentence(run: Evidence) -> str:
    """Return a sentence about the failure in the lowest rung (group of checks), except direct calls."""
    ran = [each for each in run.on_device if each.check not in DIRECT]
    failures = sorted(failed(ran), key=lambda outcome: RUNGS.index(outcome.rung))
    if failures:
        return f"{_what(run, failures[0])} {_fails(failures[0])}."
    return "No check failed." if any(each.works for each in ran) else "No check could run."


def _what(run: Evidence, outcome: Outcome) -> str:
    setting = run.results.setting(outcome.setting)
    if outcome.check not in CONVOLUTIONS:
        dtype = f" in {outcome.dtype}" if outcome.dtype else ""
        return f"The first failing check is {outcome.check.replace('-', ' ')}{dtype}: it"
    if setting and setting.verdict in NATIVE and setting.unchanged:
        return "The first native convolution"
    return f"The first convolution under {outcome.setting}"


def _fails(outcome: Outcome) -> str:
    evidence = f": {outcome.evidence[0].rstrip('.')}" if outcome.evidence else ""
    return _FAILS.get(outcome.state, f"raises an error{evidence}")
