"""Tests of whole tables: one test goes over every row and names each row that fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

_CASE = type(pytest.param())


def every_row(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Run the test once per row, as `pytest.mark.parametrize` does, but as one test that names all bad rows.

    A row is named by its id in `pytest.param`, else by its values. Each row gets an empty `tmp_path` and a
    `monkeypatch` that is undone after the row. A fixture that has a method `for_row` gives each row a new
    object. Rows share the other fixtures. If a row skips, the others still run.
    """
    columns = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)
    table = [(_values(row, len(columns)), getattr(row, "id", None)) for row in rows]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def over_every_row(*args: Any, **fixtures: Any) -> None:
            bad, skipped = [], None
            for number, (row, rule) in enumerate(table):
                try:
                    _run_row(test, args, fixtures, dict(zip(columns, row)), number)
                except pytest.skip.Exception as skip:
                    skipped = skip
                except (Exception, pytest.fail.Exception) as error:
                    bad.append((rule or _shown(row), error))
            if bad:
                lines = [f"{row}: {type(error).__name__}: {error}" for row, error in bad]
                message = "\n".join((f"{len(bad)} of {len(table)} rows fail", *lines))
                raise AssertionError(message) from bad[0][1]  # pytest shows the traceback of the first, too
            if skipped:
                raise skipped

        assert table, f"{test.__name__} has no rows"
        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name not in columns]
        over_every_row.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return over_every_row

    return decorate


def _values(row: Any, columns: int) -> tuple[Any, ...]:
    if isinstance(row, _CASE):
        return tuple(row.values)
    values = (row,) if columns == 1 else tuple(row)
    assert len(values) == columns, row
    return values


def _run_row(
    test: Callable[..., None], args: tuple[Any, ...], fixtures: dict[str, Any], row: dict[str, Any], at: int
) -> None:
    given = {name: each.for_row(at) if hasattr(each, "for_row") else each for name, each in fixtures.items()}
    if "tmp_path" in given:
        given["tmp_path"] = given["tmp_path"] / f"row{at}"
        given["tmp_path"].mkdir()
    if "monkeypatch" not in given:
        test(*args, **given, **row)
        return
    with given["monkeypatch"].context() as patched:
        test(*args, **{**given, "monkeypatch": patched}, **row)


def _shown(row: tuple[Any, ...]) -> str:
    return ", ".join(str(getattr(each, "name", None) or repr(each)[:100]) for each in row)
