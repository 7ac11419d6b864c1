"""Command line, environment and folders of a child process."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import rocmprobe
from rocmprobe.checks.tools.case import Case
from rocmprobe.knowledge import environment as programs
from rocmprobe.knowledge.environment import OWN_FOLDERS, inherited
from rocmprobe.knowledge.solvers import FORCE, is_switch
from rocmprobe.knowledge.variables import variables
from rocmprobe.model.results import Setting

#: Script that runs a module of this package. The script makes only this package importable, not the other
#: packages in the same folder.
_LAUNCH = """
import importlib.util, runpy, sys
package, module = sys.argv[1:3]
del sys.argv[1:3]
spec = importlib.util.spec_from_file_location("rocmprobe", package + "/__init__.py",
                                              submodule_search_locations=[package])
sys.modules["rocmprobe"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["rocmprobe"])
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def _own_flags() -> tuple[str, ...]:
    flags = {
        "-s": sys.flags.no_user_site,
        "-E": sys.flags.ignore_environment,
        "-B": sys.flags.dont_write_bytecode,
    }
    return tuple(flag for flag, is_set in flags.items() if is_set)


def worker_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this package in this Python."""
    package = str(Path(rocmprobe.__file__).parent)
    return [sys.executable, *_own_flags(), "-c", _LAUNCH, package, module, *arguments]


def can_share_kernels(setting: Setting) -> bool:
    """Return True if the setting can share a cache of compiled kernels with other settings."""
    return all(
        name in (FORCE, "MIOPEN_FIND_MODE") or is_switch(name, value) for name, value in setting.env.items()
    )


def environment(
    setting: Setting, folder: Path, kernels: Path, trace: Mapping[str, str], user: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables of a child process.

    ``folder`` is for databases and ``kernels`` for compiled kernels. The variables in ``trace`` turn on the
    log of the vendor library.
    """
    program = programs.environment(setting, user)
    if setting.inherit_environment:
        return {**program, **trace, **setting.env}
    own = own_folders(folder, kernels)
    return {**inherited(program), **own, "PYTHONDONTWRITEBYTECODE": "1", **trace, **setting.env}


def own_folders(databases: Path, kernels: Path) -> dict[str, str]:
    """Create folders for databases and compiled kernels. Return the paths, keyed by environment variable."""
    own = {
        variable: str((databases if variable == "MIOPEN_USER_DB_PATH" else kernels) / name)
        for variable, name in OWN_FOLDERS.items()
    }
    for path in own.values():
        Path(path).mkdir(parents=True, exist_ok=True)
    return own


def must_spawn(setting: Setting) -> bool:
    """Return True if the setting needs a new process instead of a fork."""
    if setting.inherit_environment:
        return True
    # A forked child has already loaded the libraries that read these variables.
    early = [row.name for row in variables() if row.read in ("load", "import")]
    return any(fnmatchcase(name, pattern) for name in (*setting.env, *setting.unset) for pattern in early)


def databases_folder(base: Path, case: Case) -> Path:
    """Return the folder for the databases of ``case``."""
    # A cold start needs an empty folder, so each start-up case has a separate folder. The cases without torch
    # have their own folder, because PyTorch's first convolution must not find their results.
    words = [
        case.device,
        case.setting,
        *([str(case.problem)] if case.check == "start-up" else []),
        *([case.rung] if case.direct else []),
    ]
    return _named(base, words)


def kernels_folder(base: Path, case: Case, setting: Setting) -> Path:
    """Return the folder for the compiled kernels of ``case``."""
    if case.check == "start-up" or not can_share_kernels(setting):
        return databases_folder(base, case)
    return _named(base, [case.device, "kernels"])


def _named(base: Path, words: Sequence[str]) -> Path:
    # Some compilers pass these paths to a shell, but solvers can have names like "A<2-3>".
    return base / "_".join(re.sub(r"[^\w+.-]", "", word) for word in words)
