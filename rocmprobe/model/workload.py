"""A training run that a user plans."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from rocmprobe.model.results import BadInput

_KEYS = ("images", "batch", "epochs")
_REQUIRED = ("images", "epochs")
_NUMBER = re.compile(r"[0-9]{1,12}")
#: Largest batch size. It is limited, because networks are also timed on cards with little memory.
_MOST_AT_A_TIME = 1024
_EXAMPLE = "'images=329300 batch=4 epochs=50'"


@dataclass(frozen=True)
class Workload:
    """Size of a training run. If ``batch`` is None, the network's timed batch size is used."""

    images: int
    epochs: int
    batch: Optional[int] = None


def parse_workload(text: str) -> Workload:
    """Parse the value of ``--estimate``, e.g. "images=329300 batch=4 epochs=50".

    Raise BadInput if the text is malformed or lacks ``images`` or ``epochs``.
    """
    found: dict[str, int] = {}
    for word in text.split():
        key, _, value = word.partition("=")
        if key not in _KEYS:
            raise BadInput(f"--estimate: {word!r} is not one of {', '.join(_KEYS)}; write {_EXAMPLE}")
        if key in found:
            raise BadInput(f"--estimate: {key} is given twice; remove one")
        if not _NUMBER.fullmatch(value) or not int(value):
            raise BadInput(f"--estimate: {word!r} is not a whole number above 0; write {_EXAMPLE}")
        found[key] = int(value)
    if found.get("batch", 1) > _MOST_AT_A_TIME:
        raise BadInput(f"--estimate: a batch of {found['batch']} is too large; {_MOST_AT_A_TIME} at most")
    missing = [key for key in _REQUIRED if key not in found]
    if missing:
        raise BadInput(f"--estimate: {' and '.join(missing)} missing in {text!r}; write {_EXAMPLE}")
    return Workload(found["images"], found["epochs"], found.get("batch"))
