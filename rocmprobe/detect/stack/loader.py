"""The folders where the dynamic loader searches for ROCm's libraries.

Order and formats: ld.so(8) and ldconfig(8) of glibc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rocmprobe.detect.stack import elf
from rocmprobe.detect.tree import ReadError, Tree
from rocmprobe.runtimes import library_files

OPT = "/opt"
CACHE = "/etc/ld.so.cache"
_CONF = "/etc/ld.so.conf"
_DEFAULTS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu", "/lib64", "/lib")
#: Largest number of bytes of the loader's cache that are read. On a big server, it has half a megabyte.
_CACHE_BYTES = 4 << 20
_DEEPEST_INCLUDE = 3
_LIBRARY = library_files.pattern(
    "libamdhip64",
    "libhsa-runtime64",
    "libamd_comgr",
    "libhiprtc",
    "librocblas",
    "libhipblaslt",
    "libMIOpen",
)


def rocm_folders(tree: Tree) -> list[str]:
    """Return the ROCm folders below /opt, e.g. /opt/rocm and /opt/rocm-6.4.1."""
    return [f"{OPT}/{name}" for name in tree.names(OPT) if name.startswith("rocm")]


def sdk_folders(tree: Tree, packages: str) -> list[str]:
    """Return the ``lib`` folders of AMD's ROCm wheels in the site-packages folder ``packages``."""
    return [f"{packages}/{name}/lib" for name in tree.names(packages) if name.startswith("_rocm_sdk_")]


def copies(tree: Tree, folder: str) -> dict[str, str]:
    """Return ROCm's libraries in a folder, e.g. "libMIOpen" -> "/opt/rocm/lib/libMIOpen.so.1.0"."""
    newest = library_files.newest(tree.names(folder), _LIBRARY)
    return {library: f"{folder}/{name}" for library, name in newest.items()}


def real(tree: Tree, path: str) -> str:
    """Return a path with all links resolved, or the path itself if the links form a loop."""
    try:
        return tree.real(path)
    except OSError:
        return path


def library_of(name: str) -> str:
    """Return the ROCm library of a file name, e.g. "libMIOpen" for "libMIOpen.so.1", else ""."""
    match = _LIBRARY.fullmatch(name)
    return match.group(1) if match else ""


def user_folders(environ: Mapping[str, str]) -> list[str]:
    """Return the absolute folders in LD_LIBRARY_PATH."""
    return library_files.search_path(environ.get("LD_LIBRARY_PATH", ""))


def system_folders(tree: Tree) -> list[tuple[str, str]]:
    """Return the folders that the loader searches last, each with its source, e.g. "/etc/ld.so.cache".

    Folders in the loader's cache are included only if they contain a ROCm library.
    """
    cached = [(folder, CACHE) for folder in _cached(tree)]
    if not tree.exists(CACHE):
        cached = [(folder, _CONF) for folder in _configured(tree, _CONF, _DEEPEST_INCLUDE)]
    return [*cached, *((folder, "default folder of the loader") for folder in _DEFAULTS)]


def _cached(tree: Tree) -> list[str]:
    try:
        with tree.opened(CACHE) as handle:
            data = elf.read_at(handle, _CACHE_BYTES, 0)
    except ReadError:
        return []
    folders = dict.fromkeys(
        text.rpartition("/")[0]
        for text in data.decode("utf-8", "replace").split("\0")
        if text.startswith("/") and library_of(text.rpartition("/")[2])
    )
    return list(folders)


def _configured(tree: Tree, name: str, depth: int) -> Iterator[str]:
    for line in (tree.text(name) or "").splitlines():
        words = line.partition("#")[0].split()
        if len(words) == 2 and words[0] == "include" and depth:
            folder, _, pattern = words[1].rpartition("/")
            folder = folder if folder.startswith("/") else f"/etc/{folder}"
            ending = pattern.rpartition("*")[2]
            for other in tree.names(folder):
                if other.endswith(ending):
                    yield from _configured(tree, f"{folder}/{other}", depth - 1)
        elif len(words) == 1 and words[0].startswith("/"):
            yield words[0]
