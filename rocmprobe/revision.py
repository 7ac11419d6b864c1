"""Version of rocmprobe, with the commit if this is no release."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rocmprobe import __version__

#: Written into a package that is built between releases (hatch_build.py).
FILE = Path(__file__).with_name("revision.txt")


@lru_cache(maxsize=1)
def version() -> str:
    """Return the version, e.g. "0.2.0", or "0.2.0 (79a4b741, 2026-11-29)" if this is no release."""
    commit = FILE.read_text("utf-8") if FILE.exists() else commit_of(Path(__file__).parents[1], __version__)
    return f"{__version__} ({commit})" if commit else __version__


def commit_of(folder: Path, release: str) -> str:
    """Return commit and date of the checkout ``folder``.

    Return "" if the folder is no checkout, if there is no git, or if the commit is tagged as ``release``.
    """
    if not (folder / ".git").exists():
        return ""
    import subprocess  # Most commands need no version, and this import takes 3 ms.

    command = ("git", "-C", str(folder), "log", "-1", "--format=%h, %cs\t%D")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    commit, _, names = done.stdout.strip().partition("\t")
    return "" if f"tag: v{release}" in names.split(", ") else commit
