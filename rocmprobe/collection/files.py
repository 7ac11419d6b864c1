"""The rows of a table as CSV or Parquet: one for each question of each run, as they come from the store."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from rocmprobe.model.results import BadInput, replacing

COLUMNS = (
    "label", "native_isa", "pci_id", "revision", "gpu", "device", "os", "kernel", "driver", "torch", "rocm",
    "miopen", "override", "simulated", "setting", "caller", "check", "dtype", "direction", "state",
    "cause", "solver", "problems", "started", "partial", "rocmprobe", "sha256", "file",
)  # fmt: skip
#: Rows that are in memory at once.
_BATCH = 20_000
#: A spreadsheet takes a cell that begins so for a formula, and a job of GitHub such a line for a command.
_FORMULA = ("=", "+", "-", "@", "::")


class Writable(Protocol):
    """Where text goes: an open file, or the terminal."""

    def write(self, text: str, /) -> object:
        """Take more of it."""


def write_csv(rows: Iterable[Mapping[str, Any]], stream: Writable) -> None:
    """CSV with a header. Text that a spreadsheet would take for a formula gets an apostrophe in front."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(row[name]) for name in COLUMNS] for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def write_parquet(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Parquet, by way of a file beside ``path``. Raises BadInput where pyarrow is missing, and OSError."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(
            "--format parquet needs pyarrow; install it with `pip install 'rocmprobe[table]'`, or take csv"
        ) from error
    kinds = {"problems": pyarrow.int64(), "partial": pyarrow.bool_()}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in COLUMNS])
    every = iter(rows)
    with replacing(path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        while batch := list(islice(every, _BATCH)):
            columns = {name: [row[name] for row in batch] for name in COLUMNS}
            writer.write_table(pyarrow.table(columns, schema=schema))
