"""Findings about training steps of small networks and about gradients."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.assessment import (
    failed,
    quoted,
)
from rocmprobe.judge.blame import blamed
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding
from rocmprobe.text.plain_text import joined


def training_step(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the training step fails under ``default``.

    If ``default`` has no result, use the outcomes under other settings.
    """
    asked = [outcome for outcome in run.outcomes if outcome.check == "training-step"]
    by_default = [outcome for outcome in asked if outcome.setting == "default"]
    broken = failed(by_default)
    under = f"with {run.library}"
    if not broken and not any(outcome.works for outcome in by_default):
        broken = failed(asked)
        under = f"under {joined(list(dict.fromkeys(outcome.setting for outcome in broken)))}"
    if not broken:
        return
    cause, layer = blamed(run, broken)
    advice = "Use the recommended configuration, if there is one. Its training step passed."
    if broken[0].device != "cpu" and all(outcome.state == "wrong" for outcome in broken):
        advice += (
            " To find the reason, run your program with PYTORCH_NO_CUDA_MEMORY_CACHING=1. If the numbers are "
            "correct then, a kernel reads memory with old values. The variable makes programs much "
            "slower."
        )
    yield Finding(
        "training-step", "error", cause, layer,
        f"A small network does not train correctly {under}, although each of its layers passed alone",
        quoted(broken), advice,
    )  # fmt: skip


def _step(run: Evidence, check: str, severity: str, title: str, advice: str) -> Iterator[Finding]:
    """Yield a finding if ``check`` fails under ``default``.

    ``title`` can contain the placeholders {library} and {dtypes}.
    """
    broken = failed(run.of(check))
    if broken:
        cause, layer = blamed(run, broken)
        dtypes = " and ".join(sorted({outcome.dtype for outcome in broken}))
        words = title.format(library=run.library, dtypes=dtypes)
        yield Finding(check, severity, cause, layer, words, quoted(broken), advice)


def autocast_step(run: Evidence) -> Iterator[Finding]:
    return _step(
        run, "autocast-step", "warning",
        "A small network does not train correctly under autocast to {dtypes}; in float32 it does",
        "Train in float32, or use a configuration whose autocast step passed.",
    )  # fmt: skip


def channels_last_step(run: Evidence) -> Iterator[Finding]:
    return _step(
        run, "channels-last-step", "warning",
        "A small network does not train correctly in channels-last; with contiguous images it does",
        "Do not use `memory_format=torch.channels_last`, or use a configuration whose channels-last "
        "step passed.",
    )  # fmt: skip


def gradient_flow(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if gradients are wrong with a training method, such as checkpointing."""
    broken = failed(run.of("gradient-flow"))
    if broken:
        cause, layer = blamed(run, broken)
        in_float32 = any(outcome.dtype == "float32" for outcome in broken)
        dtypes = " and ".join(sorted({outcome.dtype for outcome in broken}))
        yield Finding(
            "gradient-flow",
            "error" if in_float32 else "warning",
            cause,
            layer,
            f"Convolution gradients are wrong in {dtypes} for some training methods (such as checkpointing)",
            quoted(broken),
            "Avoid the method in the evidence, or use a configuration under which it passed.",
        )
