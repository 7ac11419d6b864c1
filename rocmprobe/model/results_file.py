"""Reader and atomic writer for results files.

msgspec checks each file against the classes of ``results.py``. ``data/results.schema.json`` describes the
same types for other programs.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional, TypeVar, cast

import msgspec

from rocmprobe import output
from rocmprobe.model.facts import GPU_FACTS, type_of
from rocmprobe.model.results import SCHEMA_VERSION, BadInput, Fact, Gpu, Machine, Results, WrittenProblem
from rocmprobe.text import reading
from rocmprobe.text.plain_text import one_line, quoted
from rocmprobe.text.redact import field_names

_T = TypeVar("_T")


def to_json(value: Any) -> Any:
    """Return a dataclass, or a collection of dataclasses, as plain JSON data.

    NaN and infinity, which JSON lacks, become None.
    """
    # dataclasses.asdict would be slower, because it copies each of the hundred thousand texts and numbers in
    # results.
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    names = field_names(value.__class__)
    if not names:
        return None if isinstance(value, float) and not math.isfinite(value) else value
    fields = {name: to_json(getattr(value, name)) for name in names}
    where_set = _where_set(value.__class__)
    return {name: item for name, item in fields.items() if item or name not in where_set}


@lru_cache(maxsize=64)
def _where_set(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if "where set" in field.metadata)


def from_json(kind: type[_T], data: object, name: str = "") -> _T:
    """Build an object of the type ``kind`` from plain JSON data.

    Raise BadInput if a field is missing, or if a field, a fact or an option has the wrong type. The message
    begins with ``name`` (default: the name of the type).
    """
    value: _T = _converted(data, kind, name or kind.__name__)
    check_facts(value)
    return value


def _converted(data: object, kind: Any, place: str) -> Any:
    try:
        return msgspec.convert(data, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        # msgspec accepts text with half a surrogate pair, but not as the name of a field.
        raise BadInput(f"{one_line(place)}: {one_line(str(error))}") from error


#: Fields through which ``_facts_in`` reaches every machine and every GPU.
_LEAD_TO_FACTS = ("machine", "simulation", "targets", "gpu", "gpus")


def check_facts(value: object) -> None:
    """Raise BadInput if a machine or GPU in ``value`` has a fact of the wrong type."""
    for name, fact, kind in _facts_in(value):
        _converted(fact.value, Optional[kind], f"fact {name}")


def _facts_in(value: object) -> Iterator[tuple[str, Fact, Any]]:
    if isinstance(value, Gpu):
        for name, kind in GPU_FACTS.items():
            yield f"gpus.{name}", getattr(value, name), kind
    if isinstance(value, Machine):
        for name, fact in value.facts.items():
            yield name, fact, type_of(name)
        for name, fact in value.variables.items():
            yield f"variables.{name}", fact, str
    for field_name in _LEAD_TO_FACTS:
        inner = getattr(value, field_name, None)
        for item in inner if isinstance(inner, tuple) else (inner,):
            if dataclasses.is_dataclass(item):
                yield from _facts_in(item)


#: Path of the results of the latest complete run on this machine that recommends a configuration.
RECOMMENDED = Path("reports/recommended/results.json")

_NO_RESULTS = "name the folder of a run, or its results.json"
_DAMAGED = "the file is damaged; start `rocmprobe run` again"


def read_results(path: Path, content: Optional[bytes] = None) -> Results:
    """Read a ``results.json``. ``path`` is the file or the folder of a run.

    ``content`` is the content of the file, if the caller has already read the file.

    Raise BadInput if the file is missing or invalid.
    """
    if content is None:
        path = results_file(path)
    return _results(_read(path, content), path)


def results_file(source: Path) -> Path:
    """Return the ``results.json`` in the folder ``source``, or ``source`` itself if it is a file."""
    return source / "results.json" if os.path.isdir(source) else source


def _read(path: Path, content: Optional[bytes] = None) -> Mapping[str, Any]:
    content = reading.read_bytes(path, _NO_RESULTS) if content is None else content
    data = reading.json_of(content, str(path), _NO_RESULTS)
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version is None or (version != SCHEMA_VERSION and "rocmprobe" not in data):
        raise BadInput(f"{path}: not a results file of rocmprobe; {_NO_RESULTS}")
    if version != SCHEMA_VERSION:
        raise BadInput(
            f"{path}: schema_version is {quoted(version)}, this rocmprobe reads {SCHEMA_VERSION}; "
            "use the rocmprobe that wrote it, or run again"
        )
    return cast(Mapping[str, Any], data)


def _results(data: Mapping[str, Any], path: Path) -> Results:
    # Imported late, because the recorded shapes, which are an option, import this module to write a file.
    from rocmprobe.model.options import WrittenOptions

    try:
        results = from_json(Results, data)
        # Options and problems keep keys that this version does not know.
        _converted(results.options, WrittenOptions, "options")
        _converted(results.problems, tuple[WrittenProblem, ...], "problems")
    except BadInput as error:
        raise BadInput(f"{path}: {error}; {_DAMAGED}") from error
    return results


def write_results(results: Results, path: Path) -> None:
    """Write ``results.json`` atomically. Replace a file or a link that is there."""
    output.write(path, results_document(results), force=True)


def results_document(results: Results) -> bytes:
    """Return the content of ``results.json`` as bytes."""
    text = json.dumps(to_json(results), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    # The name of a file can contain half a surrogate pair, which readers of JSON refuse.
    return text.encode("utf-8", "replace")
