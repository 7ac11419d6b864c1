"""Configuration under which `rocmprobe exec` runs a program."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from rocmprobe.exec.caches import VARIABLE, Caches, caches_of
from rocmprobe.exec.choice import ChosenConfiguration, NoRun, choose
from rocmprobe.exec.command import CONDITIONS, NO_PACKING
from rocmprobe.judge.recommendation.configuration import needs_clean_databases
from rocmprobe.knowledge.environment import environment
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.layers import OPTIONS, is_variable, refuse_foreign
from rocmprobe.knowledge.settings import named, with_cures
from rocmprobe.model.results import BadInput, Configuration, Results, Setting
from rocmprobe.text.plain_text import assignments, quoted
from rocmprobe.text.suggestions import did_you_mean
from rocmprobe.torch_flags import statement

#: PyTorch's device types on which the bypass can compute convolutions.
_ALL = ("cuda", "cpu")
#: Variables that hide all GPUs. HIP reads both variables. HIP and CUDA ignore an invalid index such as -1 and
#: every index after it.
_NO_GPU = {"HIP_VISIBLE_DEVICES": "-1", "CUDA_VISIBLE_DEVICES": "-1"}


@dataclass(frozen=True)
class Conditions:
    """The configuration under which `rocmprobe exec` runs a program.

    Attributes:
        words: description for the user.
        setting: setting with the environment variables of the configuration.
        variables: further environment variables of the program.
        bypass: device types on which the bypass computes convolutions.
        vendor_off: device types without the vendor library.
        flags: flags of ``torch.backends``.
        torch: version of torch that the flags are for, or "" for every version.
        pytorch_layers: device types on which PyTorch's own kernels compute a layer, keyed by layer.
    """

    words: str
    setting: Setting
    variables: Mapping[str, str] = field(default_factory=dict)
    bypass: tuple[str, ...] = ()
    vendor_off: tuple[str, ...] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)
    torch: str = ""
    pytorch_layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def environment(self, owner: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the program. ``owner`` is the user's environment."""
        inside = {
            "bypass": self.bypass, "vendor_off": self.vendor_off, "flags": dict(self.flags),
            "torch": self.torch, "pytorch_layers": dict(self.pytorch_layers),
        }  # fmt: skip
        return {**environment(self.setting, owner), **self.variables, CONDITIONS: json.dumps(inside)}


def conditions(
    profile: Optional[Path], bypass: str, setting: str = "", simulated: bool = False
) -> Conditions:
    """Return the configuration of ``setting``, or the recommended configuration if ``setting`` is empty.

    ``profile`` is the path of the results, see :func:`choose`. ``bypass`` is "auto" (as in the setting),
    "always" (on every device) or "never".

    Without a run of this machine, ``setting`` is the row of the table of settings, in the user's environment.
    If ``setting`` is empty and no configuration is recommended, "always" returns a configuration with only
    the bypass. "auto" and "never" raise BadInput.

    Raises BadInput if the results cannot be used, or if the setting needs a change of the program itself.
    """
    try:
        chosen = choose(profile, setting, simulated)
    except NoRun as error:
        if setting:
            return _of_table(setting)
        if bypass == "always":
            return _bypass_alone()
        raise BadInput(f"{error} with --profile, or use only the bypass with --bypass always") from error
    if chosen.configuration.setting is None:
        if bypass == "always":
            return _bypass_alone()
        raise BadInput(
            f"{chosen.path}: {chosen.why_none}, so nothing was run; run the program directly, "
            "or with the bypass only (--bypass always)"
        )
    return _configured(chosen, bypass)


def _bypass_alone() -> Conditions:
    only = Setting("bypass", "", "bypass", bypass=True, inherit_environment=True)
    return Conditions("only the bypass", only, NO_PACKING, bypass=_ALL)


def _of_table(name: str) -> Conditions:
    """Return a setting of MIOpen that no run has tested, on top of the user's environment."""
    settings = {row.name: row for row in with_cures("miopen", "all", None) if not row.is_incomplete}
    try:
        setting = replace(named(settings, name), inherit_environment=True)
    except KeyError as error:
        nearest = did_you_mean(name, settings) or f"; it has {', '.join(settings)}"
        raise BadInput(f"--setting: MIOpen has no setting {quoted(name)}{nearest}") from error
    if setting.changes_problems:
        raise BadInput(f"--setting: only the program itself can set what {quoted(name)} changes")
    changes = assignments(setting.env)
    return Conditions(
        f"the setting {setting.name}, which no run has tested here ({', '.join(changes) or setting.reason})",
        setting, bypass=_ALL if setting.bypass else (), vendor_off=() if setting.vendor_library else _ALL,
        flags=setting.torch, pytorch_layers=dict.fromkeys(setting.pytorch_layers, _ALL),
    )  # fmt: skip


def _configured(chosen: ChosenConfiguration, bypass: str) -> Conditions:
    path, results, configuration = chosen.path, chosen.results, chosen.configuration
    setting = _setting(chosen)
    devices = _devices(results)
    on = _ALL if bypass == "always" else devices if setting.bypass and bypass == "auto" else ()
    off = () if setting.vendor_library else devices
    variables = _variables(path, configuration)
    extra = {**(_NO_GPU if setting.device == "cpu" else {}), **(NO_PACKING if "cpu" in on else {})}
    holds = assignments(variables)
    holds += [f"unset {name}" for name in setting.unset]
    holds += [statement(name, value) for name, value in setting.torch.items()]
    holds += ["vendor library off"] if off else []
    holds += ["bypass"] if on else []
    holds += [f"{OPTIONS[option]} in PyTorch" for option in setting.pytorch_layers]
    holds += ["GPUs hidden, so the program runs on the CPU"] if setting.device == "cpu" else []
    caches = _caches(results, configuration, setting)
    if caches:
        clean = needs_clean_databases(results.findings, setting)
        why = ", because your own environment fails" if clean else ""
        holds.append(f"{'clean databases and ' if clean else ''}caches in {caches.folder}{why}")
    machine = f", for the simulated machine {results.simulated}" if results.simulated else ""
    return Conditions(
        f"the setting {setting.name} of {path} ({', '.join(holds) or 'nothing to change'}){machine}",
        replace(setting, env=variables), {**extra, **(caches.variables if caches else {})}, on, off,
        setting.torch, _torch(results, setting), dict.fromkeys(setting.pytorch_layers, devices),
    )  # fmt: skip


def _caches(results: Results, configuration: Configuration, setting: Setting) -> Optional[Caches]:
    clean = needs_clean_databases(results.findings, setting)
    caches = caches_of(results, configuration, setting, os.environ, clean)
    if caches is None or "cuda" not in _devices(results):
        return None
    try:
        caches.make()
    except OSError as error:
        if not clean:
            return None
        raise BadInput(
            f"{caches.folder}: cannot be made ({error.strerror}), but your own databases and caches are "
            f"broken; set {VARIABLE} to a folder that you can write to"
        ) from error
    return caches


def _setting(chosen: ChosenConfiguration) -> Setting:
    path, name, setting = chosen.path, chosen.configuration.setting, chosen.setting
    if setting is None:
        raise BadInput(
            f"{path}: recommendation/configuration/setting: the run had no setting {name!r}; "
            "the file is damaged; start `rocmprobe run` again"
        )
    refuse_foreign(setting, str(path))
    if setting.changes_problems:
        what = f"the dtype {setting.dtype}" if setting.dtype else "the memory format channels-last"
        raise BadInput(
            f"{path}: only the program itself can set {what} (setting {name}); "
            "nothing was run. `rocmprobe env` has the lines to write into it"
        )
    return setting


def _variables(path: Path, configuration: Configuration) -> dict[str, str]:
    """Return the environment variables of a configuration.

    Raise BadInput if the configuration contains a variable that rocmprobe never sets.
    """
    variables = dict(configuration.env)
    for name, value in variables.items():
        # Anybody can write a results file, so accept only variables that rocmprobe sets.
        ours = name.startswith(OVERRIDE) or is_variable(name, value)
        if not ours or "=" in name or "\0" in name + value:
            raise BadInput(
                f"{path}: recommendation/configuration/env: {name!r} is not a variable of a setting; "
                "start `rocmprobe run` again"
            )
    return variables


def _devices(results: Results) -> tuple[str, ...]:
    """Return ("cuda",) if the run tested a GPU, otherwise ("cpu",). Return both for a simulated machine."""
    # A simulated GPU computes on the CPU, but a program that uses its results can run on a real GPU.
    if results.simulated:
        return _ALL
    on_gpu = any(outcome.device.startswith("cuda") for outcome in results.outcomes)
    return ("cuda",) if on_gpu else ("cpu",)


def _torch(results: Results, setting: Setting) -> str:
    version = results.machine.value("torch.version")
    return str(version) if setting.search and setting.torch and version and not results.simulated else ""
