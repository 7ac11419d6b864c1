"""A setting as something to copy: variables, Python lines, and what other layers need besides."""

from __future__ import annotations

from rocmprobe.judge.blame import library
from rocmprobe.judge.evidence import Standing, failed
from rocmprobe.model import Configuration, Results, Setting

_OFF = {
    "oneDNN": "torch.backends.mkldnn.enabled = False",
    "cuDNN": "torch.backends.cudnn.enabled = False",
    "MIOpen": "torch.backends.cudnn.enabled = False  # on ROCm this switches MIOpen off",
}

_CHANNELS_LAST = "model = model.to(memory_format=torch.channels_last)  # and so its 4-d inputs"


def configuration(results: Results, best: Standing) -> Configuration:
    """What makes the setting hold in a user's program, on the machine as it was checked."""
    setting = best.setting
    # Where nothing changes the override is the user's already, and the CPU has no use for it.
    override = {} if setting.verdict in ("native", "cpu") else _override(results)
    env = {**override, **setting.env}
    return Configuration(setting.name, env, _code(results, setting), _layers(results, best))


def _override(results: Results) -> dict[str, str]:
    """The ISA override that the run stood on: without it, nothing here was checked."""
    return {
        name: str(fact.value)
        for name, fact in results.machine.variables.items()
        if name.startswith("HSA_OVERRIDE_GFX_VERSION") and fact.value
    }


def _code(results: Results, setting: Setting) -> str:
    flags = [f"torch.backends.{name} = {value}" for name, value in setting.torch.items()]
    if not setting.vendor_library:
        flags.append(_OFF[library(results)])
    if setting.channels_last:
        flags.append(_CHANNELS_LAST)
    lines = ["import torch", *flags] if flags else []
    if setting.bypass:
        lines += ["import rocmprobe.bypass", "rocmprobe.bypass.install()"]
    if setting.device == "cpu":
        lines.append('device = "cpu"')
    return "\n".join(lines)


def _layers(results: Results, best: Standing) -> tuple[str, ...]:
    name, setting = library(results), best.setting
    if setting.device == "cpu":
        return ()
    if setting.channels_last:
        return ("batch norm and the training step were not checked in channels-last",)
    if not setting.vendor_library:
        return (f"batch norm and RNN leave {name} too: the switch is one for all",)
    if not setting.bypass:
        return ()
    stay = f"batch norm and RNN stay in {name}"
    batch_norm = [
        outcome
        for outcome in results.outcomes
        if (outcome.check, outcome.setting) == ("batch-norm", "default")
    ]
    if failed(batch_norm):
        return (f"{stay}, where batch norm fails: switch {name} off too, {_OFF[name].partition('  #')[0]}",)
    if any(outcome.check == "training-step" for outcome in best.counted):
        return (f"{stay}; the training step checked batch norm, RNN was not checked",)
    return (f"{stay}, which was not checked here",)
