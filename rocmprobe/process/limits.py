"""Limits of the machine with which no run can work."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import tempfile

from rocmprobe.model.results import BadInput

#: Smallest limit of open files: rocmprobe uses up to 20, and a child with a GPU more.
_FILES = 64
#: Smallest free space in bytes for temporary files. MIOpen reports a full disk as a failed convolution.
_TEMPORARY = 16 << 20


def check_limits() -> None:
    """Raise BadInput or OSError, which name the limit, if a limit is too low for any run."""
    if not os.path.exists("/proc/self/stat"):
        raise BadInput("/proc is missing, which shows if child processes run; `mount -t proc proc /proc`")
    if 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] < _FILES:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise BadInput(f"{error.strerror}; free space there, or set TMPDIR to another folder") from error
    if shutil.disk_usage(folder).free < _TEMPORARY:
        raise BadInput(
            f"{folder}: less than {_TEMPORARY >> 20} MiB are free; free space there, or set TMPDIR to "
            "another folder"
        )
