"""Lifetime of processes: limits for this process, which the Linux kernel enforces even in a library call."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Optional

#: Constant from prctl(2).
_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: Optional[int] = None) -> None:
    """Make the Linux kernel kill this process when the thread that started this process ends.

    ``parent`` is the pid of the parent process. If the parent has already ended, exit at once.
    """
    parent = parent or os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def is_running(pid: int) -> bool:
    """Return True if there is a process with this id. On Windows, always return False."""
    if sys.platform == "win32" or pid <= 0:
        return False  # On Windows, signal 0 is Ctrl-C, so os.kill would interrupt the process.
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def die_after(seconds: int) -> None:
    """Make the Linux kernel kill this process after ``seconds``."""
    # Use the default action, because a Python handler would not run while a library call hangs.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # SIGALRM can be blocked, because a process inherits the signal mask of its parent.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.alarm(seconds)
