"""What rocmprobe makes of a journal again, and where results differ from that."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

from rocmprobe.collection.archive import JOURNAL, SAMPLES
from rocmprobe.model.results import BadInput, Results
from rocmprobe.report import write
from rocmprobe.text.plain_text import quoted

#: What is judged of a run. Another version of rocmprobe may judge the same journal in another way.
JUDGED = frozenset({"findings", "recommendation", "estimate", "step_times", "changes", "redacted"})
#: Sums differ in their last digit between versions of Python; nobody edits a number by so little.
_SAME = 1e-9


def derived(files: Mapping[str, bytes]) -> Results:
    """The judged results of the journal, and samples where there are some, among ``files``.

    Raises BadInput where the journal does not hold what a run writes.
    """
    with tempfile.TemporaryDirectory(prefix="bundle-") as name:
        folder = Path(name)
        for each in (JOURNAL, SAMPLES):
            if each in files:
                (folder / each).write_bytes(files[each])
        try:
            return write.recorded(folder)
        except BadInput as error:
            raise BadInput(str(error).replace(f"{folder}/", "")) from error


def gathered(data: Mapping[str, Any]) -> dict[str, Any]:
    """Of the JSON data of results, what was gathered and not judged: the outcomes as they came, without what
    a table of known failures says of them."""
    kept = {key: value for key, value in data.items() if key not in JUDGED}
    kept["outcomes"] = [_as_it_came(outcome) for outcome in data["outcomes"]]
    return kept


def _as_it_came(outcome: Mapping[str, Any]) -> dict[str, Any]:
    came = {key: value for key, value in outcome.items() if key != "expected"}
    if outcome.get("expected"):
        came["state"] = outcome["expected"]["state"]
    return came


def difference(found: Any, right: Any, older: bool = False) -> Optional[str]:
    """The first place in which two JSON values differ, with both values; None where they agree.

    ``older``: keys that ``found`` does not have are those of a later version, and pass.
    """
    return next(_differences(found, right, older, ()), None)


def _differences(found: Any, right: Any, older: bool, place: tuple[str, ...]) -> Iterator[str]:
    if isinstance(found, Mapping) and isinstance(right, Mapping):
        for key in found:
            if key in right:
                yield from _differences(found[key], right[key], older, (*place, str(key)))
            else:
                yield f"{_shown((*place, str(key)))} is not in the journal"
        for key in right:
            if key not in found and not older:
                yield f"{_shown((*place, str(key)))} is missing"
    elif isinstance(found, (list, tuple)) and isinstance(right, (list, tuple)):
        if len(found) != len(right):
            yield f"{_shown(place)} has {len(found)} entries, and {len(right)} by the journal"
        for number, (one, other) in enumerate(zip(found, right)):
            name = one.get("id", number) if isinstance(one, Mapping) else number
            yield from _differences(one, other, older, (*place, str(name)))
    elif not _same(found, right):
        yield f"{_shown(place)} is {quoted(found, 60)}, and {quoted(right, 60)} by the journal"


def _same(found: Any, right: Any) -> bool:
    if isinstance(found, bool) or isinstance(right, bool):
        return found is right
    if isinstance(found, (int, float)) and isinstance(right, (int, float)):
        if float not in (type(found), type(right)):
            return found == right
        if math.isnan(found) or math.isnan(right):
            return math.isnan(found) and math.isnan(right)
        return math.isclose(found, right, rel_tol=_SAME)
    return bool(type(found) is type(right) and found == right)


def _shown(place: tuple[str, ...]) -> str:
    return "/".join(place) or "all of it"
