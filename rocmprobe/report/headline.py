"""The verdict of a run in at most twelve words."""

from __future__ import annotations

from rocmprobe.judge.assessment import AS_FOUND, library
from rocmprobe.judge.findings.direct import without_torch
from rocmprobe.knowledge.layers import OPTIONS
from rocmprobe.model.results import Results


def headline(results: Results) -> str:
    """Return the verdict in at most twelve words of plain English, with a full stop."""
    found = results.recommendation
    if found is None:
        return "No recommendation: the run ended too early."
    name, setting = library(results), results.setting(found.configuration.setting)
    if setting and setting.pytorch_layers:
        others = " and ".join(OPTIONS[option] for option in setting.pytorch_layers[:2] if option in OPTIONS)
        many = "other layers" if len(setting.pytorch_layers) > 2 else others
        return f"Convolution works in {name}. Use PyTorch's kernels for {many}."
    if setting and setting.name == AS_FOUND:
        return "Convolution works here, but only with your environment and databases."
    texts = {
        "native": f"Convolution works in {name}. Change nothing.",
        "native-with-settings": f"Convolution works in {name} with the setting below.",
        "vendor-off": f"Switch {name} off. PyTorch's own kernels give correct results.",
        "bypass": f"Use rocmprobe's bypass. Convolution in {name} fails or is slower.",
        "cpu": "Use the CPU. Nothing on the GPU gave correct results.",
        "none": "No configuration gave correct results.",
        "not-judged": "Too little was tested to recommend a configuration.",
        "gpu-not-tested": "The GPU was not tested.",
    }
    if found.verdict == "gpu-not-tested" and without_torch(results):
        return "The GPU was not tested with PyTorch. Install a torch for it."
    if found.verdict == "native" and _something_to_set(results):
        return f"Convolution works in {name}. Use the configuration below."
    if found.verdict == "bypass" and _native_fails(results):
        return f"Use rocmprobe's bypass. Every {_dtype(results)} convolution in {name} failed."
    return texts[found.verdict]


def _something_to_set(results: Results) -> bool:
    found = results.recommendation
    if found is None:
        return False
    needed = found.configuration
    return bool(needed.env or needed.unset or needed.code or needed.layers)


def _native_fails(results: Results) -> bool:
    tried = [
        outcome
        for outcome in results.outcomes
        if outcome.check == "convolution"
        and outcome.setting == "default"
        and outcome.dtype == _dtype(results)
    ]
    return bool(tried) and not any(outcome.works for outcome in tried)


def _dtype(results: Results) -> str:
    found = results.recommendation
    return next(iter(found.per), "float32/").partition("/")[0] if found else ""
