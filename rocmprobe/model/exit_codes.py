"""Exit codes of rocmprobe (docs/results.md).

Under pytest, only USAGE and NOTHING are used.
"""

from __future__ import annotations

OK, FINDINGS, USAGE, NOTHING, WEDGED, INTERNAL, UNKNOWN = range(7)
#: Exit code that shells report for a program that Ctrl-C ended. After SIGTERM, the exit code is the same.
INTERRUPTED = 130
#: Exit code that shells report for a program that SIGPIPE ended because nobody reads its output any more.
UNREAD = 141
