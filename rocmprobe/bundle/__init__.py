"""A bundle: one run in one zip file, to send to a repository of results (docs/sharing-results.md).

``making`` writes one, ``checking`` says why one is refused, ``naming`` gives chip and stack the names under
which results are gathered. To read one from elsewhere: ``read_bundle``, or ``results_of`` where speed counts.
"""

from rocmprobe.bundle.archive import Refused
from rocmprobe.bundle.checking import Bundle, read_bundle, results_of

__all__ = ["Bundle", "Refused", "read_bundle", "results_of"]
