"""Generator of JSON Schemas from dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


class Rule(NamedTuple):
    """A JSON Schema keyword for the type of a field, e.g. ``Annotated[int, Rule("minimum", 0)]``."""

    keyword: str
    value: Any


#: Type of a text that is short enough to be shown in full on pages and in messages.
Name = Annotated[str, Rule("maxLength", 1000)]
Count = Annotated[int, Rule("minimum", 0)]


def schema_of(kind: type, title: str, **types: Any) -> dict[str, Any]:
    """Return the JSON Schema of the dataclass ``kind``. The schema accepts unknown fields.

    ``types`` overrides the declared types of fields.
    """
    definitions: dict[str, Any] = {}
    root = _object(kind, {**get_type_hints(kind, include_extras=True), **types}, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def required_fields(kind: Any) -> list[str]:
    """Return the names of the dataclass fields that have no default."""
    return [
        each.name
        for each in dataclasses.fields(kind)
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    ]


def _object(kind: Any, types: Mapping[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    required = required_fields(kind)
    return {
        "type": "object",
        **({"required": required} if required else {}),
        "properties": {each.name: _of(types[each.name], definitions) for each in dataclasses.fields(kind)},
    }


def _of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        rules = {rule.keyword: rule.value for rule in arguments[1:]}
        return {**_of(arguments[0], definitions), **rules}
    if dataclasses.is_dataclass(kind):
        name = kind.__name__  # type: ignore[union-attr]
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = _object(kind, get_type_hints(kind, include_extras=True), definitions)
        return {"$ref": f"#/$defs/{name}"}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is Union:
        return _or_null([_of(each, definitions) for each in arguments if each is not type(None)])
    if origin in (tuple, list):
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if origin is not None:
        inner = _of(arguments[1], definitions)
        return {"type": "object", **({"additionalProperties": inner} if inner else {})}
    return {} if kind is Any else {"type": _TYPES[kind]}


def _or_null(kinds: list[dict[str, Any]]) -> dict[str, Any]:
    [kind] = kinds
    if "$ref" in kind:
        return {"anyOf": [{"type": "null"}, kind]}
    wider = {
        **({"type": [kind["type"], "null"]} if "type" in kind else {}),
        **({"enum": [*kind["enum"], None]} if "enum" in kind else {}),
    }
    return {**kind, **wider}
