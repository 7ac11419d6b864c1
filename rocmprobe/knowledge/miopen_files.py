"""Names of MIOpen's files for a GPU.

Source of the names: MIOpen src/db_path.cpp.in, src/include/miopen/handle.hpp (GetDbBasename) and
src/hip/handlehip.cpp, versions 2.10 to 3.6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

_GPU = r"(?P<gpu>(?P<isa>gfx(?:1[0-9][0-9a-f]{2}|[0-9]{2}[0-9a-f]))(?:_[0-9]{1,3}|[0-9a-f]{2,4})?)"
_DATABASE = re.compile(
    _GPU + r"\.(?:HIP|OCL)\.(?P<version>[0-9]{1,4}_[0-9]{1,4}_[0-9]{1,4})_[A-Za-z0-9-]{0,40}"
    r"\.(?:ufdb|udb|updb)(?:\.txt)?(?:\.time)?"
)
_KERNELS = re.compile(_GPU + r"\.ukdb")
_VERSION_FOLDER = re.compile(r"(?P<version>[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4})\.[A-Za-z0-9-]{0,40}")


@dataclass(frozen=True)
class MiopenFile:
    """The GPU and the MIOpen version in the name of a user database or a kernel cache.

    ``version`` is MAJOR.MINOR.PATCH, or None if the name has no version.
    """

    gpu: str
    isa: str
    version: Optional[str]


def database_name(isa: str, cus: int) -> str:
    """Return the name that MIOpen uses in file names for a GPU with ``cus`` compute units.

    Examples: "gfx1030_36" for a gfx1030 with 72 compute units (36 workgroup processors), and "gfx90a68" for
    a gfx90a with 104 compute units (hexadecimal 68).
    """
    # From gfx10 on, HIP counts workgroup processors, which have two compute units each.
    count = cus // 2 if isa.startswith("gfx1") else cus
    # MIOpen writes a count of more than 64 in hexadecimal, without the underscore.
    return f"{isa}_{count}" if count <= 64 else f"{isa}{count:x}"


def user_file(path: str) -> Optional[MiopenFile]:
    """Parse the name of a file in MIOpen's user folders. Return None for other files.

    ``path`` is the file's name, or ``VERSION/NAME`` for compiled kernels.
    """
    folder, _, name = path.rpartition("/")
    database, kernels = _DATABASE.fullmatch(name), _KERNELS.fullmatch(name)
    made_by = _VERSION_FOLDER.fullmatch(folder)
    if database and not folder:
        return MiopenFile(database["gpu"], database["isa"], database["version"].replace("_", "."))
    if kernels and (made_by or not folder):
        return MiopenFile(kernels["gpu"], kernels["isa"], made_by["version"] if made_by else None)
    return None
