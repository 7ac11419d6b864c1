"""What the fork server imports once, so that a forked child starts in milliseconds."""

import contextlib

# A broken torch must not take the server along: the child imports it again and reports why it fails.
with contextlib.suppress(Exception):
    import torch  # noqa: F401
import rocmprobe.worker.checks
import rocmprobe.worker.main  # noqa: F401
