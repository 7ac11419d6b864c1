"""Layers of networks that a vendor library computes, and that PyTorch's own kernels can compute instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Optional

from rocmprobe.checks import CHECKS
from rocmprobe.checks.check import LibraryLayer
from rocmprobe.knowledge.settings import all_settings
from rocmprobe.knowledge.solvers import are_switches, is_switch
from rocmprobe.knowledge.variables import matters
from rocmprobe.knowledge.visible_devices import is_mask
from rocmprobe.model.results import BadInput, Outcome, Results, Setting
from rocmprobe.torch_flags import FLAGS

OPTIONS: Mapping[str, str] = {
    "batch_norm": "batch norm", "rnn": "recurrent layers", "ctc_loss": "CTC loss",
    "fused_convolution": "convolution with ReLU in one operator",
}  # fmt: skip


@lru_cache(maxsize=1)
def layer_checks() -> Mapping[LibraryLayer, tuple[str, ...]]:
    """Return the names of the checks of each layer."""
    found: dict[LibraryLayer, tuple[str, ...]] = {}
    for name, check in CHECKS.items():
        if check.layer:
            found[check.layer] = (*found.get(check.layer, ()), name)
    return found


def options_for(words: Iterable[str]) -> tuple[str, ...]:
    """Return the arguments of ``bypass.install`` for these layers, e.g. "rnn" for "recurrent layers"."""
    wanted = set(words)
    return tuple(dict.fromkeys(layer.option for layer in layer_checks() if layer.words in wanted))


def install_line(options: Iterable[str], bypass: bool = False) -> str:
    """Return a line of Python that makes PyTorch's own kernels compute the layers in ``options``."""
    words = [] if bypass else ['convolution="native"']
    words += [f'{option}="pytorch"' for option in options]
    return f"rocmprobe.bypass.install({', '.join(words)})"


def uses_pytorch_kernels(setting: Setting, outcome: Outcome) -> bool:
    """Return True if PyTorch's own kernels compute at least a part of the case in ``outcome``."""
    layer = CHECKS[outcome.check].layer if outcome.check in CHECKS else None
    sent = layer is not None and layer.option in setting.pytorch_layers
    return sent or (bool(setting.pytorch_layers) and outcome.rung == "train")


def is_variable(name: str, value: str) -> bool:
    """Return True if a setting can contain ``name=value``.

    This is a variable of any setting, or switches a solver off, or selects a GPU.
    """
    known = {known for setting, _, _ in all_settings() for known in setting.env}
    return name in known or is_switch(name, value) or is_mask(name, value)


def refuse_foreign(setting: Setting, where: str) -> None:
    """Raise BadInput if ``setting`` has a flag, variable or layer that rocmprobe's settings do not have.

    ``setting`` can come from an untrusted results file.
    """
    for what, strange in (
        ("flag", [flag for flag in setting.torch if flag not in FLAGS]),
        ("variable", [name for name, value in setting.env.items() if not is_variable(name, value)]),
        ("variable", [name for name in setting.unset if not matters(name)]),
        ("layer", [option for option in setting.pytorch_layers if option not in OPTIONS]),
    ):
        for name in strange:
            raise BadInput(f"{where}: settings: {name!r} is not a {what} of any setting; run again")


def chosen_setting(results: Optional[Results], name: Optional[str], where: str) -> Optional[Setting]:
    """Return the setting ``name`` from ``results`` if a run derived or combined it, else None.

    Raise BadInput if rocmprobe cannot have done so. A combined setting can only have flags, variables and
    layers of known settings. A derived setting can only switch solvers off.
    """
    setting = results.setting(name) if results else None
    if setting is None or not (setting.derived or setting.members or setting.one_device):
        return None
    if setting.members or setting.one_device:
        refuse_foreign(setting, where)
    elif not setting.env or not are_switches(setting.env):
        raise BadInput(
            f"{where}: in these results, {setting.name} is not a set of solver switches; run again"
        )
    return setting
