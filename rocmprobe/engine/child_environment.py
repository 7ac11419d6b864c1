"""The environment a child gets: built from an allow-list, the setting and folders of its own, for the
databases and compiled kernels of the vendor library."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rocmprobe.checks.tools.case import Case
from rocmprobe.knowledge.solvers import FORCE, is_switch
from rocmprobe.knowledge.variables import variables
from rocmprobe.model.results import Setting


def kept(environ: Mapping[str, str]) -> dict[str, str]:
    """What a child inherits of the user's environment."""
    patterns = [row.name for row in variables() if row.keep]
    return {
        name: value
        for name, value in environ.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def picks_kernels_alone(setting: Setting) -> bool:
    """Whether a setting changes which kernels run, and nothing of how one is compiled: its trials may take
    those that others of this kind have compiled. What did not compile is in no cache, so each compiles that
    itself."""
    return all(
        name in (FORCE, "MIOPEN_FIND_MODE") or is_switch(name, value) for name, value in setting.env.items()
    )


def environment(
    setting: Setting, folder: Path, kernels: Path, trace: Mapping[str, str], user: Mapping[str, str]
) -> dict[str, str]:
    """The variables of a trial's child.

    ``folder`` holds the databases of this setting and run, ``kernels`` its compiled kernels; ``trace`` makes
    the vendor library name the implementation it runs. ``as-found`` keeps the user's environment and folders.
    """
    if setting.inherit_environment:
        return {**user, **trace, **setting.env}
    own = own_folders(folder, kernels)
    return {**kept(user), **own, "PYTHONDONTWRITEBYTECODE": "1", **trace, **setting.env}


def own_folders(databases: Path, kernels: Path) -> dict[str, str]:
    """Make folders for the databases of the vendor library and for compiled kernels. Return the variables
    that name them."""
    own = {
        "MIOPEN_USER_DB_PATH": str(databases / "miopen-db"),
        "MIOPEN_CUSTOM_CACHE_DIR": str(kernels / "miopen-cache"),
        "AMD_COMGR_CACHE_DIR": str(kernels / "comgr-cache"),
        "TRITON_CACHE_DIR": str(kernels / "triton-cache"),
        "TORCHINDUCTOR_CACHE_DIR": str(kernels / "inductor-cache"),
    }
    for path in own.values():
        Path(path).mkdir(parents=True, exist_ok=True)
    return own


def must_spawn(setting: Setting) -> bool:
    """Whether a fork of a process that has imported torch would come too late for this setting."""
    if setting.inherit_environment:
        return True
    early = [row.name for row in variables() if row.read in ("load", "import")]
    return any(fnmatchcase(name, pattern) for name in setting.env for pattern in early)


def databases_folder(base: Path, case: Case) -> Path:
    """Where the databases of the child for ``case`` lie. Those of a setting are shared by its trials; a
    start-up has its own, which a cold start finds empty."""
    words = [
        case.device,
        case.driver,
        case.setting,
        *([str(case.problem)] if case.check == "start-up" else []),
    ]
    return _named(base, words)


def kernels_folder(base: Path, case: Case, setting: Setting) -> Path:
    """Where the kernels lie that the child for ``case`` compiles: one folder for all settings that change
    nothing about that, but for a start-up, which compiles its own."""
    if case.check == "start-up" or not picks_kernels_alone(setting):
        return databases_folder(base, case)
    return _named(base, [case.device, case.driver, "kernels"])


def _named(base: Path, words: Sequence[str]) -> Path:
    # Compilers are started with these paths, some through a shell: solvers have names like "A<2-3>".
    return base / "_".join(re.sub(r"[^\w+.-]", "", word) for word in words)
