"""Findings about training steps of small networks and about gradients."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.assessment import failed
from rocmprobe.judge.blame import failure
from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.settings import title as title_of
from rocmprobe.model.results import Finding
from rocmprobe.text.plain_text import joined

#: Checks of the layers of the small network.
_LAYERS = ("gemm", "convolution", "batch-norm")
_OLD_VALUES = (
    " To find the reason, run your program with PYTORCH_NO_CUDA_MEMORY_CACHING=1. If the numbers are correct "
    "then, a kernel reads memory with old values. The variable makes programs much slower."
)


def training_step(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the training step fails under ``default``.

    If ``default`` has no result, use the outcomes under other settings.
    """
    by_default = run.of("training-step")
    broken, under = failed(by_default), f"with {run.library}"
    if not broken and not any(outcome.works for outcome in by_default):
        every = [outcome for outcome in run.outcomes if outcome.check == "training-step"]
        # The ladder trains a network even if a layer that blocks the training step fails.
        blocked = {outcome.setting for outcome in every if outcome.state == "blocked"}
        broken = failed(outcome for outcome in every if outcome.setting not in blocked)
        under = f"under {joined(list(dict.fromkeys(title_of(outcome.setting) for outcome in broken)))}"
    if broken:
        alone = [run.of(name, broken[0].setting) for name in _LAYERS]
        passed = all(outcomes and all(each.works for each in outcomes) for outcomes in alone)
        title = f"A small network does not train correctly {under}"
        title += ", although each of its layers passed alone" if passed else ""
        advice = "Use the recommended configuration, if there is one. Its training step passed."
        if broken[0].device != "cpu" and all(outcome.state == "wrong" for outcome in broken):
            advice += _OLD_VALUES
        yield failure(run, "training-step", "error", title, broken, advice)


def autocast_step(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the training step fails under autocast."""
    broken = failed(run.of("autocast-step"))
    dtypes = " and ".join(sorted({outcome.dtype for outcome in broken}))
    if broken:
        title = f"A small network does not train correctly under autocast to {dtypes}; in float32 it does"
        advice = "Train in float32, or use a configuration whose autocast step passed."
        yield failure(run, "autocast-step", "warning", title, broken, advice)


def channels_last_step(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the training step fails in channels-last."""
    if broken := failed(run.of("channels-last-step")):
        title = "A small network does not train correctly in channels-last; with contiguous images it does"
        advice = (
            "Do not use `memory_format=torch.channels_last`, or use a configuration whose channels-last "
            "step passed."
        )
        yield failure(run, "channels-last-step", "warning", title, broken, advice)


def gradient_flow(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if gradients are wrong with a training method, such as checkpointing."""
    broken = failed(run.of("gradient-flow"))
    dtypes = sorted({outcome.dtype for outcome in broken})
    if broken:
        yield failure(
            run,
            "gradient-flow",
            "error" if "float32" in dtypes else "warning",
            f"Convolution gradients are wrong in {' and '.join(dtypes)} for some training methods (such as "
            "checkpointing)",
            broken,
            "Avoid the method in the evidence, or use a configuration under which it passed.",
        )
