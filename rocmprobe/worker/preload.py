"""What the fork server imports once, so that a forked child starts in milliseconds."""

import contextlib
import importlib
import signal

from rocmprobe.lifetime import die_with_parent
from rocmprobe.worker.main import import_torch

# The server watches neither its parent nor Ctrl-C before its imports are done, and those may hang.
die_with_parent()
signal.signal(signal.SIGINT, signal.SIG_IGN)
# A broken torch must not take the server along: the child imports it again and reports why it fails.
with contextlib.suppress(Exception):
    import_torch()
    # What a child would import for itself else, which takes as long as its answer to a small question.
    for name in ("torch_driver", "simulation.machine"):
        importlib.import_module(f"rocmprobe.worker.{name}")
importlib.import_module("rocmprobe.checks")
