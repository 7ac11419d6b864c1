"""A training run that a user plans: the number of images, the batch size and the number of epochs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from rocmprobe.model.results import BadInput

_KEYS = ("images", "batch", "epochs")
_REQUIRED = ("images", "epochs")
_NUMBER = re.compile(r"[0-9]{1,12}")
#: Largest batch size. Networks are also timed on cards with little memory.
_MOST_AT_A_TIME = 1024
_EXAMPLE = "'images=329300 batch=4 epochs=50'"


@dataclass(frozen=True)
class Workload:
    """Size of a training run.

    If ``batch`` is None, the estimate uses the batch size with which the network was timed.
    """

    images: int
    epochs: int
    batch: Optional[int] = None


def parse_workload(text: str) -> Workload:
    """Parse the value of ``--estimate``: words KEY=NUMBER in any order.

    ``images`` and ``epochs`` are required. Raise BadInput for any other text.
    """
    found: dict[str, int] = {}
    for word in text.split():
        key, _, value = word.partition("=")
        if key not in _KEYS:
            raise BadInput(f"--estimate: {word!r} is none of {', '.join(_KEYS)}; write {_EXAMPLE}")
        if key in found:
            raise BadInput(f"--estimate: {key} is there twice; leave one out")
        if not _NUMBER.fullmatch(value) or not int(value):
            raise BadInput(f"--estimate: {word!r} is not a whole number above 0; write {_EXAMPLE}")
        found[key] = int(value)
    if found.get("batch", 1) > _MOST_AT_A_TIME:
        raise BadInput(f"--estimate: a batch of {found['batch']} is not timed; {_MOST_AT_A_TIME} at most")
    missing = [key for key in _REQUIRED if key not in found]
    if missing:
        raise BadInput(f"--estimate: {' and '.join(missing)} missing in {text!r}; write {_EXAMPLE}")
    return Workload(found["images"], found["epochs"], found.get("batch"))
