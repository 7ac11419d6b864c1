"""TOML for Python 3.9 and 3.10 too, where the standard library has no reader."""

import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["tomllib"]
