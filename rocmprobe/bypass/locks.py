"""Locks that a fork cannot leave locked in the child."""

from __future__ import annotations

import os
import threading
from typing import Any


def lock_across_forks() -> Any:
    """A reentrant lock that whoever forks holds meanwhile.

    A child has the forking thread alone: a lock that another thread held would stay locked in it for ever.
    """
    lock = threading.RLock()
    # Windows has no fork.
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
