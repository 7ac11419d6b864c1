"""Databases and caches of programs under ``rocmprobe exec``, separate for each configuration.

Configurations never share a cache, because compiled kernels depend on environment variables that a cache does
not store.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from rocmprobe import output, user_cache
from rocmprobe.judge.assessment import device_of
from rocmprobe.knowledge.environment import OWN_FOLDERS
from rocmprobe.model.facts import FactName
from rocmprobe.model.results import Configuration, Results, Setting

#: Environment variable with the path of the folder for all caches. If it is "0", programs use the user's
#: caches.
VARIABLE = "ROCMPROBE_EXEC_CACHES"
#: Facts that determine which compiled kernels can be used.
_STACK: tuple[FactName, ...] = ("torch.version", "torch.hip", "hip.version", "miopen.version")


@dataclass(frozen=True)
class Caches:
    """The caches of one configuration.

    ``variables`` are the environment variables with the paths of databases and caches.
    """

    folder: Path
    variables: Mapping[str, str]

    def make(self) -> None:
        """Create all folders. Raises OSError if this fails."""
        for path in (self.folder, *map(Path, self.variables.values())):
            output.make_folder(path)


def caches_of(
    results: Results, configuration: Configuration, setting: Setting, environ: Mapping[str, str], clean: bool
) -> Optional[Caches]:
    """Return the caches of a configuration, or None if programs use the user's caches.

    If the user has set a variable of ``OWN_FOLDERS`` to a path, the cache that belongs to the variable is in
    a subfolder of this path. If ``clean``, the user's values of these variables are ignored.
    """
    if setting.inherit_environment or setting.device == "cpu":
        return None
    base = user_cache.folder(environ, VARIABLE, "exec")
    if base is None:
        return None
    name = _name(results, configuration, setting)
    folder = base / name
    variables = {
        variable: str(Path(environ[variable]).absolute() / f"rocmprobe-{name}" / own)
        if environ.get(variable) and not clean
        else str(folder / own)
        for variable, own in OWN_FOLDERS.items()
    }
    return Caches(folder, variables)


def _name(results: Results, configuration: Configuration, setting: Setting) -> str:
    """Return the folder name of a configuration: chip, setting and a digest."""
    device = device_of(results)
    tested = [each for each in results.outcomes if each.device == device]
    native = next((each.native_isa for each in tested if each.native_isa), None)
    effective = next((each.effective_isa for each in tested if each.effective_isa), None)
    # Compiled kernels depend on each of these values.
    matters = {
        "stack": [results.machine.value(fact) for fact in _STACK],
        "chip": [native, effective, sorted(str(gpu.cus.value) for gpu in results.machine.amd_gpus)],
        "simulated": results.simulated,
        "setting": [setting.name, dict(setting.torch), setting.vendor_library, setting.bypass],
        "layers": list(setting.pytorch_layers),
        "variables": dict(configuration.env),
    }
    digest = hashlib.sha256(json.dumps(matters, sort_keys=True).encode()).hexdigest()[:12]
    return re.sub(r"[^\w.+-]", "", f"{effective or 'gpu'}-{setting.name}"[:60]) + f"-{digest}"
