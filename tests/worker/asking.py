"""One question put to a check in this process."""

from __future__ import annotations

from typing import Any

import torch
from faulty_convolutions import planted

from rocmprobe.backends import BACKENDS
from rocmprobe.checks.tools.context import CheckContext
from rocmprobe.knowledge.settings import Versions, settings_for
from rocmprobe.model.problems import parse_problem
from rocmprobe.worker.torch_driver import holding

BACKEND = BACKENDS["onednn"]


def context(problem: str | None = None, setting: str = "default", **changes: Any) -> CheckContext:
    """``problem``, if the check has one, on this CPU under a setting, with no controller to report to."""
    row = next(each for each in settings_for("onednn", "all") if each.name == setting)
    below = changes.pop("below", planted)
    parsed = parse_problem(problem) if problem else None
    values = {
        "dtype": getattr(torch, parsed.dtype if parsed else "float32"), "device": "cpu", "backend": BACKEND,
        "problem": parsed,
        "direction": None, "seconds": 0.2, "exact": True, "bypass": row.bypass,
        "apply_setting": holding(row, BACKEND, below, Versions("oneDNN", None, torch.__version__, None)),
        "report_phase": lambda phase: None,
    }  # fmt: skip
    return CheckContext(**{**values, **changes})


__all__ = ["BACKEND", "context", "planted"]
