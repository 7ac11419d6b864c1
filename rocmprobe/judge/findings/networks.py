"""Findings about the small networks that were trained."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.checks import MODELS
from rocmprobe.judge.assessment import failed, quoted
from rocmprobe.judge.blame import blamed, library, library_layer
from rocmprobe.model.results import Finding, Outcome, Results

_WORDS = {
    "train-resnet": "A ResNet",
    "train-detector": "A network like YOLO",
    "train-unet": "A U-Net",
    "train-lstm": "An LSTM",
    "train-depthwise": "A network like MobileNet",
}


def models(results: Results) -> Iterator[Finding]:
    """One finding for each network that does not train right as PyTorch comes. They run only where the
    training step, or the layer, holds: so it is news. Under autocast it is reported where float32 holds."""
    for check in MODELS:
        broken = failed(
            outcome for outcome in results.outcomes if (outcome.check, outcome.setting) == (check, "default")
        )
        in_float32 = tuple(outcome for outcome in broken if outcome.dtype == "float32")
        if in_float32:
            yield _finding(
                results,
                in_float32,
                "error",
                f"{_WORDS[check]} does not train correctly with {library(results)}, "
                "although its parts passed",
                "Use a configuration under which it passed: see the models in the report.",
            )
        elif broken:
            dtypes = " and ".join(sorted({outcome.dtype for outcome in broken}))
            yield _finding(
                results,
                broken,
                "warning",
                f"{_WORDS[check]} does not train correctly under autocast to {dtypes}; in float32 it does",
                "Train in float32, or use a configuration under which it passed.",
            )


def _finding(
    results: Results, broken: tuple[Outcome, ...], severity: str, title: str, advice: str
) -> Finding:
    cause, layer = blamed(results, broken, library_layer(results, broken))
    return Finding(broken[0].check, severity, cause, layer, title, quoted(broken), advice)
