"""The command line. Thin: options in, one call, exit code out."""

from __future__ import annotations

from rocmprobe.cli import machine, programs, results, run, submit
from rocmprobe.cli.base import main

__all__ = ["machine", "main", "programs", "results", "run", "submit"]
