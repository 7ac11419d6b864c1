"""The installed PyTorch build, read from its files because importing torch can crash."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Optional

from rocmprobe.detect.stack import loader
from rocmprobe.detect.tree import NOT_LOOKED_UP, Tree
from rocmprobe.model.results import Fact

_RECORDED = (
    "usr/lib/python3/dist-packages",
    "usr/lib/python3*/site-packages",
    "usr/local/lib/python3*/*-packages",
    "opt/*/lib/python3*/site-packages",
)
_ASSIGNMENT = re.compile(
    r"^(__version__|hip|cuda)\b[^=\n]*=\s*(?:'([^'\n]*)'|\"([^\"\n]*)\"|None)", re.MULTILINE
)


_UNREAD = ("torch.version", "torch.hip", "torch.cuda", "torch.kind")
#: Packages with a function install() that makes functions of torch.nn.functional use another library.
#: Source: https://github.com/ROCm/rocm-libraries/pull/10562.
_REROUTES = ("hipdnn_torch",)
#: Package names of Triton for AMD. Source: the metadata of PyTorch's wheels, 2.0 to 2.13.
_TRITON = ("triton", "pytorch_triton_rocm", "triton_rocm")
_DISTRIBUTION_INSTALLERS = ("debian", "rpm", "conda")
_TAG = re.compile(r"^Tag:[ \t]*(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class TorchBuild:
    """A torch package on disk. ``folder`` is its path in the tree, or None if no torch was found.

    ``bundled`` maps the ROCm libraries in torch/lib and in AMD's ROCm wheels to their paths. If ``preloads``
    is True, torch itself loads these libraries.
    """

    folder: Optional[str]
    facts: dict[str, Fact]
    bundled: Mapping[str, str] = field(default_factory=dict)
    preloads: bool = False

    def value(self, name: str) -> Optional[str]:
        value: Optional[str] = self.facts.get(name, Fact()).value
        return value

    @property
    def for_rocm(self) -> bool:
        return self.folder is not None and self.value("torch.kind") == "rocm"

    def why_not_rocm(self) -> str:
        kind = self.value("torch.kind")
        return f"torch is built for {kind}" if kind else self.facts.get("torch.kind", Fact()).source

    def shown(self, path: str) -> str:
        """Return ``path`` relative to site-packages, e.g. "torch/lib/libMIOpen.so".

        A path outside of site-packages stays unchanged.
        """
        # The full path can contain the name of a user.
        around = f"{PurePosixPath(self.folder).parent}/" if self.folder else ""
        return path[len(around) :] if around and path.startswith(around) else path


def read_build(tree: Tree) -> TorchBuild:
    """Return the torch that this Python would import.

    For a recorded tree, return the torch that the tree contains. The facts:

    - ``torch.version``, ``torch.path``, ``triton.version``
    - ``torch.hip``, ``torch.cuda``: the versions with which torch was built
    - ``torch.kind``: rocm, cuda or cpu
    - ``torch.build``: wheel, distribution or source
    - ``torch.python_tag``: the tag of the wheel
    - ``torch.libraries``: the bundled ROCm libraries, name -> path
    - ``torch.reroutes``: installed packages that can make torch use another library, name -> version
    """
    folder, why = _imported() if tree.own else _recorded(tree)
    if folder is None:
        names = (
            *_UNREAD,
            "torch.path",
            "torch.build",
            "torch.python_tag",
            "torch.libraries",
            "torch.reroutes",
            "triton.version",
        )
        return TorchBuild(None, dict.fromkeys(names, Fact(None, why)))
    # Show only the parent folder's name, because the full path can contain a user's name.
    path = "/".join(PurePosixPath(folder).parts[-2:])
    build = TorchBuild(folder, {}, _bundled(tree, folder), tree.exists(f"{folder}/_rocm_init.py"))
    libraries = {name: build.shown(place) for name, place in sorted(build.bundled.items())}
    build.facts.update(
        {
            **_version_facts(tree, folder, f"{path}/version.py"),
            **_package_facts(tree, folder),
            "torch.path": Fact(path, "the import system" if tree.own else "the recorded tree"),
            "torch.libraries": Fact(libraries or None, "torch/lib" if libraries else "none in torch/lib"),
        }
    )
    return build


def _version_facts(tree: Tree, folder: str, source: str) -> dict[str, Fact]:
    text = tree.text(f"{folder}/version.py")
    if text is None:
        unread = Fact(None, f"{source}: missing or unreadable, so torch cannot be imported either")
        return dict.fromkeys(_UNREAD, unread)
    assigned = {match.group(1): match.group(2) or match.group(3) for match in _ASSIGNMENT.finditer(text)}
    return {
        "torch.version": Fact(assigned.get("__version__"), f"{source} __version__"),
        "torch.hip": Fact(assigned.get("hip"), f"{source} hip"),
        "torch.cuda": Fact(assigned.get("cuda"), f"{source} cuda"),
        "torch.kind": Fact(_kind(assigned), f"{source} hip and cuda"),
    }


def _package_facts(tree: Tree, folder: str) -> dict[str, Fact]:
    """Return facts about torch's wheel and the packages next to torch (formats: PEP 376, PEP 427)."""
    around = str(PurePosixPath(folder).parent)
    metadata = next(
        (name for name in tree.names(around) if re.fullmatch(r"torch-[^-]+\.dist-info", name)), None
    )
    installer = (tree.text(f"{around}/{metadata}/INSTALLER") or "").lower()
    wheel = tree.text(f"{around}/{metadata}/WHEEL") or ""
    tag = _TAG.search(wheel)
    reroutes = {
        name: _version_beside(tree, around, name)
        for name in _REROUTES
        if tree.exists(f"{around}/{name}/__init__.py")
    }
    triton = next(filter(None, (_version_beside(tree, around, name) for name in _TRITON)), None)
    if not metadata and tree.exists(f"{around}/setup.py"):
        build = Fact("source", "setup.py next to torch")
    elif folder.startswith("/usr/lib") or installer in _DISTRIBUTION_INSTALLERS:
        # Only a distribution installs packages below /usr/lib. pip uses other folders.
        build = Fact(
            "distribution", f"{metadata}/INSTALLER {installer}" if installer else "its place below /usr/lib"
        )
    elif wheel:
        build = Fact("wheel", f"{metadata}/WHEEL")
    else:
        build = Fact(None, "no torch-*.dist-info/WHEEL and no setup.py next to torch")
    return {
        "torch.build": build,
        "torch.python_tag": Fact(tag.group(1), f"{metadata}/WHEEL")
        if tag
        else Fact(None, "no torch-*.dist-info/WHEEL"),
        "triton.version": Fact(triton, "the packages next to torch"),
        "torch.reroutes": Fact(reroutes or None, "the packages next to torch"),
    }


def _version_beside(tree: Tree, around: str, package: str) -> Optional[str]:
    pattern = re.compile(rf"{package}-(?P<version>[^-]+)\.dist-info")
    matches = (pattern.fullmatch(name) for name in tree.names(around))
    return next((match["version"] for match in matches if match), None)


def _bundled(tree: Tree, folder: str) -> dict[str, str]:
    around = str(PurePosixPath(folder).parent)
    bundled: dict[str, str] = {}
    for place in [f"{folder}/lib", *loader.sdk_folders(tree, around)]:
        bundled = {**loader.copies(tree, place), **bundled}
    return bundled


def python_version(tree: Tree) -> Fact:
    """Return the version of this Python."""
    if not tree.own:
        return Fact(None, NOT_LOOKED_UP)
    return Fact(".".join(str(part) for part in sys.version_info[:3]), "the running Python")


def _kind(assigned: dict[str, Optional[str]]) -> Optional[str]:
    if "__version__" not in assigned:
        return None
    return "rocm" if assigned.get("hip") else "cuda" if assigned.get("cuda") else "cpu"


def _imported() -> tuple[Optional[str], str]:
    # For a top-level package, find_spec finds the files without importing the package.
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError, AttributeError) as error:
        return None, f"the import system failed to look torch up: {type(error).__name__}"
    if spec is None:
        return None, "torch is not installed for this Python"
    if not spec.has_location or spec.origin is None:
        return None, "a folder named torch without __init__.py: left over from a removed package"
    return Path(spec.origin).parent.as_posix(), ""


def _recorded(tree: Tree) -> tuple[Optional[str], str]:
    for pattern in _RECORDED:
        for place in sorted(tree.root.glob(pattern)):
            folder = "/" + place.relative_to(tree.root).as_posix() + "/torch"
            if tree.exists(f"{folder}/version.py"):
                return folder, ""
    return None, NOT_LOOKED_UP
