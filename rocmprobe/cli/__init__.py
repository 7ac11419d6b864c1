"""The command line: a file for each command, with its options, what it prints and its exit code."""

from rocmprobe.cli.base import main

__all__ = ["main"]
