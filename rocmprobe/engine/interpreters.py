"""Interpreters of other Python environments, given with ``--python``.

An environment needs torch, but not the dependencies of rocmprobe.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from rocmprobe.detect import Python
from rocmprobe.engine.launch import inherited_variables
from rocmprobe.model.results import MEMBER_NAME, BadInput
from rocmprobe.process import children
from rocmprobe.text.reading import json_line
from rocmprobe.text.redact import redacted_text

#: Environment variable that passes the interpreters' paths to the other processes of a run. The journal
#: cannot pass them, because paths in the journal are redacted.
VARIABLE = "ROCMPROBE_PYTHONS"
#: Timeout in seconds for the start of an interpreter, which can take seconds on a slow disk.
_ANSWER_SECONDS = 20.0
#: Script that prints facts about an interpreter. It leaves out the empty path that ``python -c`` adds to
#: ``sys.path``.
_QUESTION = """
import json, sys
version = ".".join(map(str, sys.version_info[:3]))
print(json.dumps(["python", version, [path for path in sys.path if path]]))
"""
_OLDEST = (3, 9)


@dataclass(frozen=True)
class Interpreter:
    """The interpreter of a Python environment.

    ``path`` is ``sys.path``. ``unusable`` is the reason why the environment cannot be tested, or "".
    """

    name: str
    python: str
    version: str = ""
    path: tuple[str, ...] = ()
    unusable: str = ""

    @property
    def imports(self) -> Python:
        """Version and ``sys.path`` of the interpreter."""
        return Python(self.version, self.path)


def interpreters(wanted: Sequence[str]) -> tuple[Interpreter, ...]:
    """Return the interpreters in ``wanted``, given as "PATH" or "NAME=PATH".

    PATH is an interpreter or a virtual environment. Raise BadInput for an invalid or repeated name, and if
    all interpreters are unusable.
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
    # A path can contain an equals sign.
    if not equals or Path(text).exists() or "/" in name:
        path = Path(os.path.abspath(Path(text).expanduser()))
        return _name_of(path), path
    if not MEMBER_NAME.fullmatch(name):
        raise BadInput(
            f"--python {text!r}: {name!r} is not a valid name; a name has letters, digits, '.', '_', '+' and "
            "'-', at most 40, and begins with a letter or a digit"
        )
    return name, Path(os.path.abspath(Path(rest).expanduser()))


def _name_of(path: Path) -> str:
    folder = path if path.is_dir() else path.parent.parent
    if (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").is_dir():
        name = folder.name
        if name.lstrip(".") in ("venv", "env", "virtualenv"):
            name = folder.parent.name
    else:
        name = path.name
    name = re.sub(r"[^\w.+-]+", "-", name, flags=re.ASCII).strip(".-_+")[:40]
    # The ids of cases are not redacted, so they must not contain the name of a person.
    return name if MEMBER_NAME.fullmatch(name) and redacted_text(name) == name else "environment"


def _asked(name: str, path: Path) -> Interpreter:
    python = _interpreter(path)
    if python is None:
        what = "this folder has no bin/python" if path.is_dir() else "no such file"
        return Interpreter(name, str(path), unusable=f"{what}; name an interpreter or a virtual environment")
    ended = children.run([python, "-c", _QUESTION], inherited_variables(os.environ), _ANSWER_SECONDS)
    answers = [answer for line in ended.out.splitlines() if isinstance(answer := json_line(line), list)]
    if ended.failure or not answers or len(answers[-1]) != 3 or answers[-1][0] != "python":
        last = (ended.err.strip().splitlines() or [""])[-1][:200]
        why = f"{ended.failure or 'it does not behave like Python'}{f': {last}' if last else ''}"
        return Interpreter(name, python, unusable=f"no Python that can be used ({why})")
    _, version, folders = answers[-1]
    unusable = ""
    if tuple(map(int, str(version).split(".")[:2])) < _OLDEST:
        unusable = f"Python {version}: rocmprobe's workers need {'.'.join(map(str, _OLDEST))} or newer"
    return Interpreter(name, python, str(version), tuple(map(str, folders)), unusable)


def _interpreter(path: Path) -> Optional[str]:
    """Return ``path`` if it is a file, else the interpreter in this folder, or None."""
    # Do not resolve links, because the interpreter of a virtual environment is a link.
    names = ("bin/python", "bin/python3", "python") if path.is_dir() else ("",)
    return next((str(path / name) if name else str(path) for name in names if (path / name).is_file()), None)


def export_paths(found: Sequence[Interpreter]) -> None:
    """Pass the interpreters' paths to child processes in the variable ROCMPROBE_PYTHONS."""
    os.environ[VARIABLE] = json.dumps({each.name: each.python for each in found})


def found_again(name: str, python: str) -> str:
    """Return the real path of the interpreter ``name``. ``python`` is the redacted path in the journal.

    Raise BadInput if the interpreter is missing.
    """
    passed = json_line(os.environ.get(VARIABLE, "")) or {}
    expanded = python.replace("<home>", str(Path.home()), 1)
    for candidate in (passed.get(name, ""), python, expanded):
        if candidate and redacted_text(candidate) == redacted_text(python) and Path(candidate).is_file():
            return str(candidate)
    raise BadInput(
        f"{python}: the interpreter of {name!r} is not found; name it again with --python {name}=PATH"
    )
