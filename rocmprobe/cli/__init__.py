"""The command line: a file for each command, named as it is. Thin: options in, one call, exit code out."""

from rocmprobe.cli.base import main

__all__ = ["main"]
