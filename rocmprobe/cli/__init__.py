"""The command line. Each command is in a separate module with its options, output and exit code."""

from rocmprobe.cli.base import main

__all__ = ["main"]
