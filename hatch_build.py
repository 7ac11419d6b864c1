"""Build hook: write the commit into packages that are built between releases."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Commit(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, self.root)
        from rocmprobe import __version__
        from rocmprobe.revision import FILE, commit_of

        # An editable installation asks git when it runs, and a source distribution has the file already.
        commit = "" if version == "editable" or FILE.exists() else commit_of(Path(self.root), __version__)
        if commit:
            self._folder = tempfile.TemporaryDirectory()
            written = Path(self._folder.name) / FILE.name
            written.write_text(commit, "utf-8")
            build_data["force_include"][str(written)] = f"rocmprobe/{FILE.name}"
