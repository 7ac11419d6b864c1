"""Layers of networks that a vendor library computes, and the setting ``by-layer``.

Under ``by-layer``, PyTorch's own kernels compute the layers that fail in the vendor library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Optional

from rocmprobe.checks import CHECKS
from rocmprobe.checks.check import LibraryLayer
from rocmprobe.knowledge.settings import all_settings, searches
from rocmprobe.knowledge.solvers import DerivedSetting, are_switches, is_switch
from rocmprobe.model.results import BadInput, Outcome, Results, Setting

NAME = "by-layer"
OPTIONS: Mapping[str, str] = {
    "batch_norm": "batch norm", "rnn": "recurrent layers", "ctc_loss": "CTC loss",
    "fused_convolution": "convolution with ReLU in one operator",
}  # fmt: skip
#: Checks of training only. They do not count for inference.
_OF_TRAINING = ("batch-norm",)


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


def failing(outcomes: Iterable[Outcome], purpose: str) -> tuple[str, ...]:
    """Return the layers that fail in the vendor library, as keys of OPTIONS (e.g. "rnn").

    ``outcomes`` are the outcomes under the setting ``default``. If ``purpose`` is "inference", ignore checks
    of training.
    """
    # PyTorch does not use MIOpen for float64.
    broken = {outcome.check for outcome in outcomes if outcome.fails and outcome.dtype != "float64"}
    if purpose == "inference":
        broken -= set(_OF_TRAINING)
    return tuple(
        dict.fromkeys(layer.option for layer, checks in layer_checks().items() if broken & set(checks))
    )


def holds(convolutions: Iterable[Outcome]) -> bool:
    """Return True if convolutions were tested and all are correct.

    If float32 was tested, ignore other dtypes.
    """
    asked = [each for each in convolutions if each.meaning.counted]
    asked = [each for each in asked if each.dtype == "float32"] or asked
    return bool(asked) and all(each.works for each in asked)


def by_layer(options: Sequence[str], cures: Iterable[Setting]) -> DerivedSetting:
    """Return the setting ``by-layer``, or the reason why this setting cannot be used.

    ``options`` are the layers for PyTorch's kernels. ``cures`` are settings under which convolution works.
    """
    if not options:
        return DerivedSetting(None, "skipped", "no tested layer fails in the vendor library")
    base = min(cures, key=lambda each: len(each.env) + len(each.torch), default=None)
    if base is None:
        return DerivedSetting(None, "skipped", "no setting makes convolution work in the vendor library")
    words = " and ".join(OPTIONS[option] for option in options)
    convolution = "unchanged" if base.unchanged else f"as under {base.name}"
    reason = f"convolution by the vendor library, {convolution}; {words} by PyTorch's own kernels"
    return DerivedSetting(
        dict(base.env), "", reason, dict(base.torch), base.search, base.verdict, tuple(options),
    )  # fmt: skip


def is_variable(name: str, value: str) -> bool:
    """Return True if ``name`` is a variable of any setting, or if ``name=value`` switches a solver off."""
    known = {known for setting, _, _ in all_settings() for known in setting.env}
    return name in known or is_switch(name, value)


def refuse_foreign(setting: Setting, where: str) -> None:
    """Raise BadInput if ``setting`` has a flag, variable or layer that rocmprobe's settings do not have.

    ``setting`` can come from an untrusted results file.
    """
    flags = {flag for each, _, _ in all_settings() for flag in each.torch}
    flags.update(flag for each in searches() for flag in each.torch)
    for what, strange in (
        ("flag", [flag for flag in setting.torch if flag not in flags]),
        ("variable", [name for name, value in setting.env.items() if not is_variable(name, value)]),
        ("layer", [option for option in setting.pytorch_layers if option not in OPTIONS]),
    ):
        for name in strange:
            raise BadInput(f"{where}: settings: {name!r} is not a {what} of any setting; run again")


def chosen_setting(results: Optional[Results], name: Optional[str], where: str) -> Optional[Setting]:
    """Return the setting ``name`` from ``results`` if a run chose its variables or layers, else None.

    Raise BadInput if rocmprobe cannot have chosen them. A ``by-layer`` setting can only have flags, variables
    and layers of known settings. Other chosen settings can only switch solvers off.
    """
    setting = results.setting(name) if results else None
    if setting is None or not setting.derived:
        return None
    if setting.by_layer:
        refuse_foreign(setting, where)
    elif not setting.env or not are_switches(setting.env):
        raise BadInput(
            f"{where}: in these results, {setting.name} is not a set of solver switches; run again"
        )
    return setting
