"""Limits that a child process sets on its own lifetime.

The kernel enforces these limits, even if the child hangs inside a library call.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Optional

#: prctl(2).
_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: Optional[int] = None) -> None:
    """Have the kernel kill this process when its parent thread ends.

    Exit at once if ``parent`` is already gone.
    """
    parent = parent or os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def die_after(seconds: int) -> None:
    """Have the kernel kill this process after ``seconds``."""
    # The default action, because a handler in Python waits until the library call returns.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # A child inherits the signal mask, so SIGALRM may be blocked.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.alarm(seconds)
