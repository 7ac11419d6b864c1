"""The colours of every page that rocmprobe writes, light and dark, as variables of CSS."""

from __future__ import annotations

from importlib import resources


def colours() -> str:
    """The style sheet that a page begins with."""
    return resources.files("rocmprobe.report").joinpath("colours.css").read_text("utf-8")
