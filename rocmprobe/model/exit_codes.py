"""Exit codes of rocmprobe, and of pytest over its suites where pytest has none of its own for it
(docs/results.md)."""

from __future__ import annotations

OK, FINDINGS, USAGE, NOTHING, WEDGED, INTERNAL, UNKNOWN = range(7)
#: What shells report for a program that Ctrl-C ended; SIGTERM ends a run in the same way.
INTERRUPTED = 130
#: What shells report for a program that SIGPIPE ended: nobody reads its output any more.
UNREAD = 141
