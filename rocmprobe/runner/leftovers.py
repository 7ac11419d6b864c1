"""Temporary folders by owner, so that those of a run that nothing could clean up after are found."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Optional

from rocmprobe.model import BadInput

_NAME = re.compile(r"rocmprobe-(\d+)-(\d+)-(\d+)-\w+")


def own_folder() -> Path:
    """A new temporary folder whose name says which process made it."""
    space, pid = _pid_namespace(), os.getpid()
    return Path(tempfile.mkdtemp(prefix=f"rocmprobe-{space}-{pid}-{_started(pid)}-"))


def remove_leftovers() -> int:
    """Remove the temporary folders that dead processes of this user have left; returns how many.

    Raises BadInput where nothing can be written to any temporary folder.
    """
    try:
        base = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise BadInput(f"{error.strerror}; make room there, or name another with TMPDIR") from error
    removed = 0
    for path in base.glob("rocmprobe-*"):
        match = _NAME.fullmatch(path.name)
        if not match:
            continue
        space, pid, started = map(int, match.groups())
        # Containers may share the folder; whether a process of another one lives cannot be seen here.
        if space != _pid_namespace() or _started(pid) == started or not _is_own(path):
            continue
        shutil.rmtree(path, ignore_errors=True)
        removed += not os.path.lexists(path)
    return removed


def _is_own(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.getuid()
    except OSError:
        return False


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _started(pid: int) -> Optional[int]:
    """When a process started, in the kernel's ticks: with its number, this names it for good."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])
