"""The functions that answer the checks by torch: each takes a CheckContext and returns a CheckResult."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import cast

from rocmprobe.model.checks import CHECKS
from rocmprobe.worker.context import CheckContext, CheckResult


def _function(name: str) -> Callable[[CheckContext], CheckResult]:
    module, function = name.split(".")
    return cast(
        Callable[[CheckContext], CheckResult], getattr(import_module(f"{__name__}.{module}"), function)
    )


#: By the name of the check.
CHECK_FUNCTIONS = {name: _function(check.function) for name, check in CHECKS.items()}
