"""The command line. Thin: options in, one call, exit code out."""

from __future__ import annotations

from rocmprobe.cli import check, machine, programs, results, run, submit, table
from rocmprobe.cli.base import main

__all__ = ["check", "machine", "main", "programs", "results", "run", "submit", "table"]
