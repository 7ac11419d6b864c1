"""Start of a program whose Python processes import ``site/sitecustomize.py``."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from rocmprobe.model.results import BadInput

#: Environment variable with the configuration, which ``inject`` reads in the program and its children.
CONDITIONS = "ROCMPROBE_EXEC"
RECORD = "ROCMPROBE_RECORD"
#: Environment variable that a user can set to the path of a file. Every process appends a line to this file.
STATUS = "ROCMPROBE_BYPASS_STATUS"
#: Variable that stops Inductor from replacing convolutions with constant weights by oneDNN's operators. The
#: bypass does not see oneDNN's operators.
NO_PACKING = {"TORCHINDUCTOR_CPP_WEIGHT_PREPACK": "0"}

_SITE = Path(__file__).parent / "inject" / "site"
_PYTHON = re.compile(r"(?:python|pypy)\d*(?:\.\d+)*[a-z]?")
#: Programs that run another program, which follows their options on the command line.
_WRAPPERS = frozenset(
    ("chrt", "conda", "hatch", "ionice", "mamba", "mpiexec", "mpirun", "nice", "nohup", "numactl", "pdm",
     "pipenv", "poetry", "setsid", "srun", "stdbuf", "strace", "taskset", "time", "timeout", "uv", "xvfb-run")
)  # fmt: skip
#: Programs that run another program with a different environment.
_OTHER_USERS = frozenset({"doas", "pkexec", "su", "sudo"})
#: Letters of options that need a value, for the programs python and env. The value follows in the same
#: argument or in the next.
_PYTHON_VALUES = "WX"
_ENV_VALUES = "uCaS"
_DEEPEST = 5
_TAKES_AWAY = (
    "removes rocmprobe's variables from the environment, so nothing was run; write it before `rocmprobe`"
)


def with_configuration(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` with rocmprobe's sitecustomize first in PYTHONPATH.

    Raises BadInput if rocmprobe's path contains ``os.pathsep``, or if the file in ROCMPROBE_BYPASS_STATUS
    cannot be written.
    """
    if os.pathsep in str(_SITE):
        raise BadInput(f"{_SITE}: PYTHONPATH cannot contain a path with {os.pathsep!r}; install elsewhere")
    found = dict(environ)
    path = environ.get("PYTHONPATH")
    if not path:
        found["PYTHONPATH"] = str(_SITE)
    elif path.split(os.pathsep)[0] != str(_SITE):
        found["PYTHONPATH"] = f"{_SITE}{os.pathsep}{path}"
    if environ.get(STATUS):
        # A program can change its working directory, so the path must be absolute.
        found[STATUS] = os.path.abspath(environ[STATUS])
        try:
            os.close(os.open(found[STATUS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666))
        except OSError as error:
            raise BadInput(
                f"{STATUS}: {found[STATUS]}: cannot be written ({error.strerror}); name another"
            ) from error
    return found


def replace_process(program: str, command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by ``program``.

    Raises BadInput if the system cannot start the program.
    """
    # Reset the signals that Python ignores. Otherwise the program would ignore them, too.
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)
    try:
        os.execve(program, list(command), dict(environ))  # noqa: S606 - to become it is the purpose
    except OSError as error:
        raise cannot_run(command, error) from error


def cannot_run(command: Sequence[str], error: OSError) -> BadInput:
    """Return the error for a program that the system cannot start."""
    return BadInput(f"{command[0]}: cannot be run ({error.strerror}); name a program, such as python FILE")


def find_program(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the path of the program that ``command`` starts.

    Raises BadInput if the program does not exist, or would not import rocmprobe's sitecustomize.
    """
    path = environ.get("PATH", os.defpath)
    program = shutil.which(command[0], path=path)
    if program is None:
        raise BadInput(f"{command[0]}: there is no such program; name one that can be run, after --")
    why = _refused(list(command), path, 0)
    if why:
        raise BadInput(f"{shlex.join(command[:1])}: {why}")
    return program


def _refused(words: list[str], path: str, depth: int) -> str:
    """Return the reason why Python, started by ``words``, would not import rocmprobe's sitecustomize.

    Return "" if no reason is known. ``depth`` counts the commands around ``words``: 0 for the whole
    command, 1 for the words after ``env``.
    """
    if not words or depth > _DEEPEST:
        return ""
    name = os.path.basename(words[0])
    if _PYTHON.fullmatch(name):
        return _isolated(words[1:])
    if name in _OTHER_USERS:
        return f"it {_TAKES_AWAY}"
    if name == "env":
        return _by_env(words[1:], path, depth)
    if name in _WRAPPERS:
        rest = words[1:]
        while rest and not (_PYTHON.fullmatch(os.path.basename(rest[0])) or shutil.which(rest[0], path=path)):
            rest = rest[1:]
        return _refused(rest, path, depth + 1)
    return _refused(_interpreter(shutil.which(words[0], path=path)), path, depth + 1)


def _interpreter(program: str | None) -> list[str]:
    """Return the words of a script's ``#!`` line."""
    try:
        with open(program or os.devnull, "rb") as stream:
            first, second = stream.readline(4096), stream.readline(4096)
    except OSError:
        return []
    if not first.startswith(b"#!"):
        return []
    words = first[2:].decode("utf-8", "replace").split()
    # If the first line would be too long, pip writes the interpreter to the second line.
    quoted = second.decode("utf-8", "replace")
    return quoted.replace("'''exec'", "", 1).split() if quoted.startswith("'''exec'") else words


def _isolated(options: Sequence[str]) -> str:
    words = iter(options)
    for word in words:
        if word == "--check-hash-based-pycs":
            next(words, None)
        if word.startswith("--"):
            continue
        if not word.startswith("-") or word == "-":
            return ""
        for place, letter in enumerate(word[1:], 2):
            if letter in "IES":
                return (
                    f"with the option -{letter}, Python does not load rocmprobe's configuration, so nothing "
                    "was run; leave the option out, or write the lines of `rocmprobe env` into the program"
                )
            if letter in "cm":
                return ""
            if letter in _PYTHON_VALUES:
                if not word[place:]:
                    next(words, None)
                break
    return ""


def _by_env(words: list[str], path: str, depth: int) -> str:
    ours = ("PYTHONPATH", CONDITIONS, RECORD)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word in ("-", "--ignore-environment") or (name in ours and equals):
            return f"env {word} {_TAKES_AWAY}"
        if word.startswith("--"):
            letter = {"--unset": "u", "--chdir": "C", "--argv0": "a", "--split-string": "S"}.get(name, "")
        elif word.startswith("-"):
            letter, value = _parse_env_option(word)
            equals = value
        elif equals:
            continue
        else:
            return _refused([word, *words], path, depth + 1)
        if letter == "i":
            return f"env {word} {_TAKES_AWAY}"
        if letter and not equals:
            value = words.pop(0) if words else ""
        if letter == "u" and value in ours:
            return f"env -u {value} {_TAKES_AWAY}"
        if letter == "S":
            words = value.split() + words
    return ""


def _parse_env_option(word: str) -> tuple[str, str]:
    """Find the first of env's options i, u, C, a and S in ``word``.

    Return (letter, text after the letter), or ("", "") if ``word`` has none of these options.
    """
    for place, letter in enumerate(word[1:], 2):
        if letter == "i" or letter in _ENV_VALUES:
            return letter, word[place:]
    return "", ""
