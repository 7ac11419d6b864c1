"""What the page carries along, compressed: its results.json, and texts for issue trackers to copy."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from functools import partial
from typing import Any, Optional

from markupsafe import Markup

from rocmprobe.model import BadInput, Results, to_json
from rocmprobe.report.size import Fit

_TRACKERS = {"miopen": "MIOpen", "rocm": "ROCm", "pytorch": "PyTorch", "ultralytics": "Ultralytics"}


def results_data(results: Results, fit: Fit) -> Optional[Markup]:
    """The whole results.json, packed; None where that is more than fits."""
    packed = pack(to_json(results))
    return packed if len(packed) <= fit.data else None


def issue_texts(results: Results) -> dict[str, str]:
    """By what it is for, the text to paste there; a tracker that has nothing to be told is left out."""
    texts = {}
    for name, write in _writers().items():
        try:
            texts[name] = write(results)
        except BadInput:
            continue
    return texts


def _writers() -> dict[str, Callable[[Results], str]]:
    from rocmprobe.report.markdown import markdown

    try:
        from rocmprobe.report.issue import issue_block
    except ImportError:
        return {"Markdown": markdown}
    blocks = {name: partial(issue_block, tracker=tracker) for tracker, name in _TRACKERS.items()}
    return {**blocks, "Markdown": markdown}


def pack(data: Any) -> Markup:
    """``data`` as JSON, gzip and base64: no character of HTML is left in it, and no date."""
    text = json.dumps(data, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return Markup(packed)  # noqa: S704 - letters and numbers
