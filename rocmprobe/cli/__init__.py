"""The command line."""

from rocmprobe.cli.base import main

__all__ = ["main"]
