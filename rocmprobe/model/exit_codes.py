"""Exit codes of rocmprobe, and of pytest over its suites if pytest has no code for the situation
(docs/results.md)."""

from __future__ import annotations

OK, FINDINGS, USAGE, NOTHING, WEDGED, INTERNAL, UNKNOWN = range(7)
#: Shells report this code for a program that Ctrl-C ended. SIGTERM ends a run in the same way.
INTERRUPTED = 130
#: Shells report this code for a program that SIGPIPE ended because nobody reads its output any more.
UNREAD = 141
