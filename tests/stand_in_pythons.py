"""Virtual environments for tests: torch and what it needs, and nothing that rocmprobe needs; or a torch that
does something else."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path

#: What rocmprobe needs and torch does not, with what Python has of it, as an older one has not.
HIDDEN = ("tomllib", "tomli", "msgspec", "jsonschema", "click", "rich", "pytest", "packaging")

_HIDING = """\
import sys
class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hiding())
"""


def python_with_torch_alone(folder: Path, torch: str | None = None) -> Path:
    """A virtual environment of links in ``folder`` that has the torch of this one and what that needs, and no
    reader of TOML; or, with ``torch``, a package of that name whose import does this."""
    home = Path(sys.base_exec_prefix) / "bin"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = folder / "lib" / version / "site-packages"
    site.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(home / version)
    (site / "sitecustomize.py").write_text(_HIDING.format(hidden=HIDDEN))
    if torch is not None:
        (site / "torch").mkdir()
        (site / "torch" / "__init__.py").write_text(torch)
        (site / "torch" / "version.py").write_text("__version__ = '2.4.0'\ncuda = None\nhip = None\n")
        return folder
    for distribution in _needed("torch"):
        for top in {Path(file).parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    return folder


def _needed(name: str) -> list[importlib.metadata.Distribution]:
    """The distribution ``name`` and those that it needs, as far as they are installed."""
    found: dict[str, importlib.metadata.Distribution] = {}
    left = [name]
    while left:
        wanted = left.pop()
        try:
            distribution = importlib.metadata.distribution(wanted)
        except importlib.metadata.PackageNotFoundError:
            continue
        if wanted in found:
            continue
        found[wanted] = distribution
        requires = [each for each in distribution.requires or () if "extra ==" not in each]
        left += [match[0] for each in requires if (match := re.match(r"[\w.-]+", each))]
    return list(found.values())
