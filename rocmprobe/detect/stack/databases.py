"""MIOpen's system databases, and the folders to which MIOpen writes.

The name of a database contains the effective ISA and the number of multiprocessors that HIP reports (source:
MIOpen's db_path and handle). On RDNA, a multiprocessor is a pair of compute units.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Optional

from rocmprobe.detect.stack import loader
from rocmprobe.detect.stack.libraries import Libraries
from rocmprobe.detect.stack.torch_build import TorchBuild
from rocmprobe.detect.tree import NOT_LOOKED_UP, Tree, shown_below_home
from rocmprobe.knowledge.miopen_files import database_name
from rocmprobe.model.facts import CacheFolder
from rocmprobe.model.results import Fact, Gpu

MOUNTS = "/proc/mounts"
_NAME = r"(gfx(?:1[0-9][0-9a-f]{2}|[0-9]{2}[0-9a-f]))(_[0-9]+|[0-9a-f]+)?"
_FILES = {
    "miopen.find_db": re.compile(_NAME + r"\.HIP\.fdb\.txt"),
    "miopen.perf_db": re.compile(_NAME + r"\.db(?:\.txt)?"),
    "miopen.kernel_db": re.compile(_NAME + r"\.kdb"),
}
#: Network file systems. SQLite's locks are slow or broken there, and MIOpen reports an internal error.
NETWORK = frozenset(
    {
        "nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs",
        "fuse.glusterfs", "fuse.sshfs", "afs", "panfs", "pvfs2", "orangefs", "9p", "wekafs",
    }
)  # fmt: skip
_MOST_FILES = 2000


def read_facts(
    tree: Tree, torch: TorchBuild, libraries: Libraries, gpus: Iterable[Gpu], environ: Mapping[str, str]
) -> dict[str, Fact]:
    """Return the facts about MIOpen's databases.

    - ``miopen.db_path``: the folder of the system databases
    - ``miopen.find_db``, ``miopen.perf_db``, ``miopen.kernel_db``: database name -> the file that MIOpen
      would use, or None. A GPU has two database names if its native and effective ISA differ.
    - ``miopen.user_db``, ``miopen.kernel_cache``: ``path``, ``exists``, ``bytes``, ``files``, ``writable``,
      ``filesystem`` and ``network`` of the folders to which MIOpen writes
    """
    places, source = _places(libraries, environ)
    folder = next((place for place in places if tree.names(place)), None)
    names = sorted({name for gpu in gpus for name in _database_names(gpu)})
    if folder is None:
        system = dict.fromkeys(("miopen.db_path", *_FILES), Fact(None, _why_none(torch, places, source)))
    else:
        files = tree.names(folder)
        files_of = {fact: {name: _matching_file(name, files, fact) for name in names} for fact in _FILES}
        no_gpu = Fact(None, "no AMD GPU with known ISA and number of compute units")
        system = {
            fact: Fact(taken, "file names in miopen.db_path") if names else no_gpu
            for fact, taken in files_of.items()
        }
        system["miopen.db_path"] = Fact(torch.shown(os.path.normpath(folder)), source)
    return {**system, **_user(tree, environ)}


def _places(libraries: Libraries, environ: Mapping[str, str]) -> tuple[list[str], str]:
    configured = environ.get("MIOPEN_SYSTEM_DB_PATH")
    if configured:
        return [configured], "MIOPEN_SYSTEM_DB_PATH"
    library = libraries.chosen.get("libMIOpen")
    if library is None:
        return [], "no libMIOpen is installed"
    beside = library.path.rpartition("/")[0]
    # The data of a library below lib/x86_64-linux-gnu are one folder higher.
    return [f"{beside}/../share/miopen/db", f"{beside}/../../share/miopen/db"], "next to libMIOpen"


def _why_none(torch: TorchBuild, places: list[str], source: str) -> str:
    if not places:
        return source
    why = f"{torch.shown(os.path.normpath(places[0]))}: no databases"
    # Source: the build script of the wheels, pytorch/builder common/install_miopen.sh.
    return (
        why + "; wheels for ROCm 4.2 to 5.4 have databases inside the library"
        if "libMIOpen" in torch.bundled
        else why
    )


def _database_names(gpu: Gpu) -> set[str]:
    cus = gpu.cus.value
    isas = {isa.partition(":")[0] for isa in (gpu.native_isa.value, gpu.effective_isa.value) if isa}
    return {database_name(isa, cus) for isa in isas} if cus else set()


def _matching_file(name: str, files: Iterable[str], fact: str) -> Optional[str]:
    """Return the file that MIOpen would use for a database name, or None.

    MIOpen uses the file for the same chip with the nearest number of multiprocessors. For
    ``miopen.kernel_db``, the number must be equal.
    """
    chip, count = _chip_and_count(re.fullmatch(_NAME, name))
    distances = []
    for file in files:
        other, size = _chip_and_count(_FILES[fact].fullmatch(file))
        if other != chip:
            continue
        # A file name without a number of multiprocessors fits every number.
        distance = 0 if size is None or count is None else abs(size - count)
        # Compiled kernels for another number of multiprocessors do not fit.
        if distance == 0 or fact != "miopen.kernel_db":
            distances.append((distance, size is None, file))
    return min(distances)[-1] if distances else None


def _chip_and_count(match: Optional[re.Match[str]]) -> tuple[Optional[str], Optional[int]]:
    if match is None:
        return None, None
    chip, count = match.groups()
    if count is None:
        return chip, None
    return chip, int(count[1:]) if count.startswith("_") else int(count, 16)


def _user(tree: Tree, environ: Mapping[str, str]) -> dict[str, Fact]:
    home = environ.get("HOME")
    places = {
        "miopen.user_db": ("MIOPEN_USER_DB_PATH", ".config/miopen"),
        "miopen.kernel_cache": ("MIOPEN_CUSTOM_CACHE_DIR", ".cache/miopen"),
    }
    facts = {}
    for fact, (variable, default) in places.items():
        configured = environ.get(variable)
        if not configured and not home:
            facts[fact] = Fact(None, f"neither {variable} nor HOME is set" if tree.own else NOT_LOOKED_UP)
            continue
        path = configured or f"{home}/{default}"
        if home and path.startswith("~/"):
            path = f"{home}{path[1:]}"
        path = os.path.abspath(path)
        source = variable if configured else f"MIOpen's default, {variable} is not set"
        facts[fact] = Fact(_folder(tree, path, shown_below_home(path, environ)), source)
    return facts


def _folder(tree: Tree, path: str, shown: str) -> CacheFolder:
    there = path
    while not tree.exists(there) and there not in ("/", ""):
        there = there.rpartition("/")[0] or "/"
    files, size = _counted(tree, path) if there == path else (0, 0)
    filesystem = _filesystem(tree, there)
    return {
        "path": shown,
        "exists": there == path,
        "files": files,
        "bytes": size,
        "writable": os.access(tree.locate(there), os.W_OK | os.X_OK),
        "filesystem": filesystem,
        "network": filesystem in NETWORK if filesystem else None,
    }


def _counted(tree: Tree, path: str) -> tuple[int, int]:
    files, size = 0, 0
    for folder, _, names in os.walk(tree.locate(path)):
        for name in names:
            try:
                size += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
            files += 1
            if files >= _MOST_FILES:
                return files, size
    return files, size


def _filesystem(tree: Tree, path: str) -> Optional[str]:
    path = loader.real(tree, path)
    longest: tuple[int, Optional[str]] = (0, None)
    for line in (tree.text(MOUNTS) or "").splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        # In /proc/mounts, spaces are octal escapes.
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), words[1])
        if path == point or path.startswith(point.rstrip("/") + "/"):
            longest = max(longest, (len(point), words[2]), key=lambda item: item[0])
    return longest[1]
