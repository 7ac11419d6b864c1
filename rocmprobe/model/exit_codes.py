"""Exit codes of rocmprobe (docs/results.md).

pytest, when it runs rocmprobe's suites, returns these codes for situations for which it has no own code.
"""

from __future__ import annotations

OK, FINDINGS, USAGE, NOTHING, WEDGED, INTERNAL, UNKNOWN = range(7)
#: Shells report this code for a program that Ctrl-C ended. SIGTERM ends a run in the same way.
INTERRUPTED = 130
#: Shells report this code for a program that SIGPIPE ended because nobody reads its output any more.
UNREAD = 141
