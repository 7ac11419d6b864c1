"""A bundle: one run in one zip file, to send to a repository of results (docs/sharing-results.md).

``making`` writes one, ``checking`` says why one is refused, ``naming`` gives chip and stack the names under
which results are gathered. ``read_bundle`` is how one is read.
"""

from rocmprobe.bundle.archive import Refused
from rocmprobe.bundle.checking import Bundle, read_bundle

__all__ = ["Bundle", "Refused", "read_bundle"]
