"""The Python environments that a run was given with ``--python``: their names, whether they can be asked, and
how a worker is started in one. Such an interpreter needs torch, and nothing of what rocmprobe needs itself.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import rocmprobe
from rocmprobe.detect import Python
from rocmprobe.engine.child_environment import kept
from rocmprobe.model.results import MEMBER_NAME, BadInput
from rocmprobe.process import children
from rocmprobe.process.guardian import guardian
from rocmprobe.process.leftovers import own_folder
from rocmprobe.text.reading import json_line
from rocmprobe.text.redact import redacted_text
from rocmprobe.text.tables import AS_JSON, write_as_json

#: How the paths of interpreters reach the processes of a run, by name: their journal is redacted.
VARIABLE = "ROCMPROBE_PYTHONS"
#: An interpreter answers in a fraction of a second; one on a cold disk or a network takes a few.
_ANSWER_SECONDS = 20.0
#: ``-c`` puts the working directory on ``sys.path``, which the interpreter does not have otherwise.
_QUESTION = """
import json, sys
reads_toml = False
for name in ("tomllib", "tomli"):
    try:
        __import__(name)
        reads_toml = True
    except ImportError:
        pass
version = ".".join(map(str, sys.version_info[:3]))
print(json.dumps(["python", version, [path for path in sys.path if path], reads_toml]))
"""
#: Makes this package, and nothing else of its folder, importable in any interpreter; then runs a module.
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
_OLDEST = (3, 9)


@dataclass(frozen=True)
class Interpreter:
    """An environment's interpreter: the path as it was found, what it says of itself, and whether it can read
    TOML. ``unusable`` says why it cannot be asked at all, "" where it can."""

    name: str
    python: str
    version: str = ""
    path: tuple[str, ...] = ()
    reads_toml: bool = True
    unusable: str = ""

    @property
    def imports(self) -> Python:
        """What detection reads of it."""
        return Python(self.version, self.path)


@dataclass(frozen=True)
class Launch:
    """The way to start a worker in an interpreter.

    ``variables`` are added to the worker's environment, ``flags`` to the interpreter's command line.
    """

    python: str
    variables: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    def command(self, module: str, *arguments: str) -> list[str]:
        package = str(Path(rocmprobe.__file__).parent)
        return [self.python, *self.flags, "-c", _LAUNCH, package, module, *arguments]


def _own_flags() -> tuple[str, ...]:
    """Return the flags that make another process of this interpreter find the same modules."""
    flags = {
        "-s": sys.flags.no_user_site,
        "-E": sys.flags.ignore_environment,
        "-B": sys.flags.dont_write_bytecode,
    }
    return tuple(flag for flag, is_set in flags.items() if is_set)


#: The interpreter that this process runs in.
OWN = Launch(sys.executable, flags=_own_flags())


def launch(python: str, reads_toml: bool) -> Launch:
    """How to start a worker in the interpreter ``python``."""
    return Launch(python, {} if reads_toml else {AS_JSON: str(_tables())})


@functools.lru_cache(maxsize=1)
def _tables() -> Path:
    """A folder with the tables in JSON, for a Python that reads no TOML; removed when this process ends."""
    folder = own_folder()
    guardian().remove(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_as_json(folder)
    return folder


def interpreters(wanted: Sequence[str]) -> tuple[Interpreter, ...]:
    """The interpreters that ``wanted`` names, each "PATH" or "NAME=PATH" of an interpreter or of a virtual
    environment's folder, and what they say of themselves; those that say nothing are unusable.

    Raises BadInput for a name that is none or is there twice, and where all are no interpreter.
    """
    named = [_named(text) for text in wanted]
    for name in [name for name, _ in named]:
        if [other for other, _ in named].count(name) > 1:
            raise BadInput(f"--python: two environments are named {name!r}; name them with NAME=PATH")
    found = tuple(_asked(name, path) for name, path in named)
    if found and all(each.unusable for each in found):
        raise BadInput("; ".join(f"--python {each.python}: {each.unusable}" for each in found))
    return found


def _named(text: str) -> tuple[str, Path]:
    name, equals, rest = text.partition("=")
    # A path may have an equals sign in it.
    if not equals or Path(text).exists() or "/" in name:
        path = Path(os.path.abspath(Path(text).expanduser()))
        return _name_of(path), path
    if not MEMBER_NAME.fullmatch(name):
        raise BadInput(
            f"--python {text!r}: {name!r} is no name; a name has letters, digits, '.', '_', '+' and '-', at "
            "most 40, and begins with a letter or a digit"
        )
    return name, Path(os.path.abspath(Path(rest).expanduser()))


def _name_of(path: Path) -> str:
    """A name for the environment at ``path``: that of its folder, or the interpreter's where it has none."""
    folder = path if path.is_dir() else path.parent.parent
    if (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").is_dir():
        name = folder.name
        if name.lstrip(".") in ("venv", "env", "virtualenv"):
            name = folder.parent.name
    else:
        name = path.name
    name = re.sub(r"[^\w.+-]+", "-", name, flags=re.ASCII).strip(".-_+")[:40]
    # The ids of questions are not redacted, so no name of a person may get into them.
    return name if MEMBER_NAME.fullmatch(name) and redacted_text(name) == name else "environment"


def _asked(name: str, path: Path) -> Interpreter:
    python = _interpreter(path)
    if python is None:
        what = "a folder without bin/python" if path.is_dir() else "there is no such file"
        return Interpreter(name, str(path), unusable=f"{what}; name an interpreter or a virtual environment")
    ended = children.run([python, "-c", _QUESTION], kept(os.environ), _ANSWER_SECONDS)
    answers = [answer for line in ended.out.splitlines() if isinstance(answer := json_line(line), list)]
    if ended.failure or not answers or len(answers[-1]) != 4 or answers[-1][0] != "python":
        last = (ended.err.strip().splitlines() or [""])[-1][:200]
        why = f"{ended.failure or 'it does not answer as a Python does'}{f': {last}' if last else ''}"
        return Interpreter(name, python, unusable=f"no Python that can be used ({why})")
    _, version, folders, reads_toml = answers[-1]
    unusable = ""
    if tuple(map(int, str(version).split(".")[:2])) < _OLDEST:
        unusable = f"Python {version}: rocmprobe's workers need {'.'.join(map(str, _OLDEST))} or newer"
    return Interpreter(name, python, str(version), tuple(map(str, folders)), bool(reads_toml), unusable)


def _interpreter(path: Path) -> Optional[str]:
    """The interpreter that ``path`` is or holds. Links are kept: a virtual environment's is one."""
    names = ("bin/python", "bin/python3", "python") if path.is_dir() else ("",)
    return next((str(path / name) if name else str(path) for name in names if (path / name).is_file()), None)


def pass_on(found: Sequence[Interpreter]) -> None:
    """Let the processes of this run know the paths of its interpreters."""
    os.environ[VARIABLE] = json.dumps({each.name: each.python for each in found})


def found_again(name: str, python: str) -> str:
    """The interpreter of an environment that a run's journal names in redacted form.

    Raises BadInput where it is not there any more.
    """
    passed = json_line(os.environ.get(VARIABLE, "")) or {}
    expanded = python.replace("<home>", str(Path.home()), 1)
    for candidate in (passed.get(name, ""), python, expanded):
        if candidate and redacted_text(candidate) == redacted_text(python) and Path(candidate).is_file():
            return str(candidate)
    raise BadInput(
        f"{python}: the interpreter of {name!r} is not found; name it again with --python {name}=PATH"
    )
