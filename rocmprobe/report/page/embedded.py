"""What the page carries along, compressed: its results.json, and texts for issue trackers to copy."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any, Optional

from markupsafe import Markup

from rocmprobe.model.results import Results, to_json
from rocmprobe.report.issue.failure import TRACKERS, failures
from rocmprobe.report.issue.issue import issue_block
from rocmprobe.report.page.size import Fit
from rocmprobe.report.terminal.markdown import markdown

_NAMES = {"miopen": "MIOpen", "rocm": "ROCm", "pytorch": "PyTorch", "ultralytics": "Ultralytics"}


def results_data(results: Results, fit: Fit) -> Optional[Markup]:
    """The whole results.json, packed; None where that is more than fits."""
    packed = pack(to_json(results))
    return packed if len(packed) <= fit.data else None


def issue_texts(results: Results) -> dict[str, str]:
    """By what it is for, the text to paste there; where nothing failed there is the Markdown only."""
    trackers = TRACKERS if failures(results) else ()
    blocks = {_NAMES.get(tracker, tracker): issue_block(results, tracker) for tracker in trackers}
    return {**blocks, "Markdown": markdown(results)}


def pack(data: Any) -> Markup:
    """``data`` as JSON, gzip and base64: no character of HTML is left in it, and no date."""
    text = json.dumps(data, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return Markup(packed)  # noqa: S704 - letters and numbers
