"""Temporary folders, and removal of the folders that dead processes left."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from rocmprobe.process.processes import pid_namespace, started

_NAME = re.compile(r"rocmprobe-(\d+)-(\d+)-(\d+)-\w+")


def own_folder() -> Path:
    """Create a temporary folder whose name identifies this process. Return the path."""
    pid = os.getpid()
    return Path(tempfile.mkdtemp(prefix=f"rocmprobe-{pid_namespace()}-{pid}-{started(pid)}-"))


def remove_leftovers() -> int:
    """Remove the temporary folders of this user's dead processes. Return the number of removed folders."""
    removed = 0
    for path in Path(tempfile.gettempdir()).glob("rocmprobe-*"):
        match = _NAME.fullmatch(path.name)
        if not match:
            continue
        space, pid, start = map(int, match.groups())
        # Containers can share the folder, and the processes of another container are not visible here.
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
