"""The command line: a file for each command, with its options, output and exit code."""

from rocmprobe.cli.base import main

__all__ = ["main"]
