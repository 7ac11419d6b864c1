"""Temporary folders by owner, so that those of a run that nothing could clean up after are found."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Optional

from rocmprobe.model.results import BadInput
from rocmprobe.process.processes import pid_namespace, started

_NAME = re.compile(r"rocmprobe-(\d+)-(\d+)-(\d+)-\w+")
#: Folder for files that the user's temporary folder may be too deep for.
_SHORT = Path("/tmp")  # noqa: S108


def own_folder(longest: Optional[int] = None) -> Path:
    """A new temporary folder whose name says which process made it. Where its path would have more than
    ``longest`` characters, it is in /tmp, whatever TMPDIR says."""
    space, pid = pid_namespace(), os.getpid()
    made = Path(tempfile.mkdtemp(prefix=f"rocmprobe-{space}-{pid}-{started(pid)}-"))
    if longest is None or len(os.fsencode(made)) <= longest:
        return made
    made.rmdir()
    return Path(tempfile.mkdtemp(prefix=made.name[:-8], dir=_SHORT))


def remove_leftovers() -> int:
    """Remove the temporary folders that dead processes of this user have left; returns how many.

    Raises BadInput where nothing can be written to any temporary folder.
    """
    try:
        base = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise BadInput(f"{error.strerror}; make room there, or name another with TMPDIR") from error
    removed = 0
    for path in {*base.glob("rocmprobe-*"), *_SHORT.glob("rocmprobe-*")}:
        match = _NAME.fullmatch(path.name)
        if not match:
            continue
        space, pid, start = map(int, match.groups())
        # Containers may share the folder; whether a process of another one lives cannot be seen here.
        if space != pid_namespace() or started(pid) == start or not _is_own(path):
            continue
        shutil.rmtree(path, ignore_errors=True)
        removed += not os.path.lexists(path)
    return removed


def _is_own(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.getuid()
    except OSError:
        return False
