"""The installed PyTorch build, read from its files: importing torch may be what crashes here."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Optional

from rocmprobe.detect.tree import Tree
from rocmprobe.model import Fact

_NOT_LOOKED_UP = "not looked up: --root"
#: Where a recorded tree may hold an installed torch, as patterns below the root.
_RECORDED = (
    "usr/lib/python3/dist-packages",
    "usr/lib/python3*/site-packages",
    "usr/local/lib/python3*/*-packages",
    "opt/*/lib/python3*/site-packages",
)
_ASSIGNMENT = re.compile(
    r"^(__version__|hip|cuda)\b[^=\n]*=\s*(?:'([^'\n]*)'|\"([^\"\n]*)\"|None)", re.MULTILINE
)


@dataclass(frozen=True)
class TorchBuild:
    """A torch package on disk. ``folder`` is its path in the tree read, None if there is none."""

    folder: Optional[str]
    facts: dict[str, Fact]
    bundles_miopen: bool = False

    def value(self, name: str) -> Optional[str]:
        value: Optional[str] = self.facts.get(name, Fact()).value
        return value


def read_build(tree: Tree) -> TorchBuild:
    """The torch that this Python would import, or one found in a recorded tree."""
    folder, why = _own() if tree.own else _recorded(tree)
    if folder is None:
        facts = dict.fromkeys(("torch.version", "torch.hip", "torch.cuda", "torch.kind"), Fact(None, why))
        return TorchBuild(None, {**facts, "torch.path": Fact(None, why)})
    # The name of the folder around it says wheel, distribution or source tree; the rest may name a user.
    path = "/".join(PurePosixPath(folder).parts[-2:])
    source = f"{path}/version.py"
    text = tree.text(f"{folder}/version.py")
    if text is None:
        unread = Fact(None, f"{source}: missing or unreadable, so torch cannot be imported either")
        facts = dict.fromkeys(("torch.version", "torch.hip", "torch.cuda", "torch.kind"), unread)
    else:
        found = {match.group(1): match.group(2) or match.group(3) for match in _ASSIGNMENT.finditer(text)}
        facts = {
            "torch.version": Fact(found.get("__version__"), f"{source} __version__"),
            "torch.hip": Fact(found.get("hip"), f"{source} hip"),
            "torch.cuda": Fact(found.get("cuda"), f"{source} cuda"),
            "torch.kind": Fact(_kind(found), f"{source} hip and cuda"),
        }
    libraries = tree.names(f"{folder}/lib")
    return TorchBuild(
        folder,
        {**facts, "torch.path": Fact(path, "the import system" if tree.own else "the recorded tree")},
        bundles_miopen=any(name.startswith("libMIOpen") for name in libraries),
    )


def python_version(tree: Tree) -> Fact:
    """The version of the running Python."""
    if not tree.own:
        return Fact(None, _NOT_LOOKED_UP)
    return Fact(".".join(str(part) for part in sys.version_info[:3]), "the running Python")


def _kind(found: dict[str, Optional[str]]) -> Optional[str]:
    if "__version__" not in found:
        return None
    return "rocm" if found.get("hip") else "cuda" if found.get("cuda") else "cpu"


def _own() -> tuple[Optional[str], str]:
    # For a top-level package find_spec locates without importing.
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError, AttributeError) as error:
        return None, f"the import system failed to look torch up: {type(error).__name__}"
    if spec is None:
        return None, "torch is not installed for this Python"
    if not spec.has_location or spec.origin is None:
        return None, "a folder named torch without __init__.py: rests of a removed package"
    return str(Path(spec.origin).parent), ""


def _recorded(tree: Tree) -> tuple[Optional[str], str]:
    for pattern in _RECORDED:
        for place in sorted(tree.root.glob(pattern)):
            folder = "/" + place.relative_to(tree.root).as_posix() + "/torch"
            if tree.exists(f"{folder}/version.py"):
                return folder, ""
    return None, _NOT_LOOKED_UP
