"""The records of a journal and of samples without identifiers, one text for each record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from rocmprobe.text import reading

Redaction = Callable[[Any], Any]


def cleaned(record: Any, redaction: Redaction) -> Any:
    """A record with what ``redaction`` makes of it, and without what only the machine itself needs: which
    start of it this was, and where the folder of the run is."""
    record = redaction(record)
    if not isinstance(record, dict):
        return record
    if "boot" in record:
        record["boot"] = ""
    if record.get("record") == "run":
        record["folder"] = PurePosixPath(str(record.get("folder", ""))).name
        # So that whoever makes files of this journal counts the placeholders, and redacts what is added.
        if isinstance(record.get("options"), dict):
            record["options"] = {**record["options"], "redact": True}
    return record


def lines(content: bytes) -> Iterator[Any]:
    """The JSON value of each line, None for one that is none: torn, too long or too deep."""
    for each in filter(None, content.split(b"\n")):
        yield reading.json_line(each)


def line(record: Any) -> bytes:
    """A record as the journal has it."""
    return (json.dumps(record) + "\n").encode()
