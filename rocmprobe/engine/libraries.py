"""The ROCm libraries that the driver ``capi`` calls, and the GPUs that HIP reports."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from rocmprobe.backends.capi import ORIGINS, Place, choose, place_in, places
from rocmprobe.engine.launch import inherited_variables
from rocmprobe.model.results import BadInput, Fact, Gpu, NothingToTest
from rocmprobe.model.results_file import to_json
from rocmprobe.process import children
from rocmprobe.text.reading import json_line
from rocmprobe.text.redact import redacted

#: Environment variable that passes the folder given by ``--libraries`` to the other processes of a run. The
#: journal cannot pass the folder, because paths in the journal are redacted.
VARIABLE = "ROCMPROBE_LIBRARIES"
#: Libraries that the driver requires. rocBLAS is optional.
_NEEDED = ("libamdhip64", "libMIOpen")
_LOOKED = "searched LD_LIBRARY_PATH, ROCM_PATH, /opt/rocm*, the distribution's folders and torch's lib/"
#: Timeout in seconds. The first use of a GPU after boot can be slow, and so can loading some GB from a disk.
_QUERY_SECONDS = 60.0


@dataclass(frozen=True)
class HipReport:
    """GPUs and library versions that HIP and the libraries report.

    Each device has ``arch``, ``name`` and ``bytes`` of memory. A version is "" if unknown. ``mapped`` has the
    loaded files of each library.
    """

    devices: tuple[Mapping[str, Any], ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    mapped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def gpu(self, number: int) -> Gpu:
        """Return the GPU ``number`` with only the facts from HIP."""
        device = self.devices[number]
        arch = str(device["arch"]).partition(":")[0]
        return Gpu(
            effective_isa=Fact(arch or None, "HIP, gcnArchName"),
            name=Fact(device["name"] or None, "HIP, hipDeviceGetName"),
            vram_bytes=Fact(device["bytes"] or None, "HIP, hipMemGetInfo"),
            vendor=Fact("amd", "HIP"),
        )


def find_place(wanted: str, first: str = "") -> Place:
    """Return the ROCm installation from which to load the libraries.

    ``wanted`` is a folder, a name in ORIGINS, or "" for any installation. If ``wanted`` is "", prefer the
    origin ``first``. Raise BadInput if ``wanted`` is invalid, and NothingToTest if HIP or MIOpen is missing.
    """
    if wanted and wanted not in ORIGINS:
        if not Path(wanted).is_dir():
            raise BadInput(f"--libraries {wanted}: neither a folder nor one of {', '.join(ORIGINS)}")
        place: Optional[Place] = place_in(wanted)
    else:
        found = [each for each in places(os.environ) if not _lacking(each)]
        place = (choose(found, first) if first and not wanted else None) or choose(found, wanted)
    if place is None:
        where = f"at the place {wanted!r}" if wanted else "anywhere"
        raise NothingToTest(
            f"no libamdhip64 with a libMIOpen {where}: {_LOOKED}; install ROCm, or name the folder with "
            "--libraries"
        )
    if _lacking(place):
        raise NothingToTest(f"--libraries {wanted}: this folder has no {' and no '.join(_lacking(place))}")
    return place


def _lacking(place: Place) -> list[str]:
    return [name for name in _NEEDED if name not in place.files]


def resolve_redacted(place: Place) -> Place:
    """Return ``place`` with real instead of redacted paths. Raise BadInput if the libraries are missing."""
    named = os.environ.get(VARIABLE)
    candidates = [*([place_in(named)] if named else []), *places(os.environ)]
    for candidate in candidates:
        if redacted(to_json(candidate)) == redacted(to_json(place)):
            return candidate
    raise BadInput(f"{place.folder}: the libraries of this run are not there; name them with --libraries")


def with_folder(place: Place, environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ``, with the folder of ``--libraries`` in LD_LIBRARY_PATH if the user gave a folder."""
    if place.origin != "folder":
        return dict(environ)
    folders = dict.fromkeys(os.path.dirname(path) for path in place.files.values())
    before = environ.get("LD_LIBRARY_PATH")
    return {**environ, "LD_LIBRARY_PATH": ":".join([*folders, *([before] if before else [])])}


def query_hip(place: Place, seconds: float = _QUERY_SECONDS) -> HipReport:
    """Query the libraries in ``place`` in a child process.

    Raise NothingToTest if HIP fails, the child crashes, or the query takes longer than ``seconds``.
    """
    files = [place.files["libamdhip64"], place.files["libMIOpen"], place.files.get("librocblas", "")]
    command = [sys.executable, "-m", "rocmprobe.worker.device_query", "hip", *files]
    ended = children.run(command, with_folder(place, inherited_variables(os.environ)), seconds)
    answers: dict[str, tuple[Any, str]] = {}
    call = "while it was loaded"
    for line in ended.out.splitlines():
        answer = json_line(line)
        if not isinstance(answer, list) or not answer:
            continue
        question, *rest = answer
        if question == "call":
            call = f"in {rest[0]}"
        elif len(rest) == 2:
            answers[str(question)] = rest[0], rest[1]
    devices, failure = answers.get("devices", (None, ""))
    failure = answers.get("count", (None, ""))[1] or failure
    if devices is None or failure:
        how = failure or f"the process that called it ended {call}: {ended.failure}"
        last = "" if failure else (ended.err.strip().splitlines() or [""])[-1][:200]
        raise NothingToTest(
            f"{place.files['libamdhip64']}: HIP fails: {how}{f': {last}' if last else ''}; see "
            "`rocmprobe detect`"
        )
    names = [name for name in answers if name in ("hip", "rocblas", "miopen")]
    versions = {name: str(answers[name][0] or "") for name in names}
    mapped = {name: tuple(paths) for name, paths in (answers.get("mapped", ({}, ""))[0] or {}).items()}
    return HipReport(tuple(devices), {**versions, "hip": _release(versions.get("hip", ""))}, mapped)


def _release(number: str) -> str:
    value = int(number) if number.isdigit() else 0
    if value < 10_000_000:
        return number
    return f"{value // 10_000_000}.{value // 100_000 % 100}.{value % 100_000}"


def facts(place: Place, answer: HipReport) -> dict[str, Fact]:
    """Return the facts about the libraries, named ``capi.*``."""
    asked = f"{place.folder} ({place.origin})"
    return {
        "capi.place": Fact(place.folder, place.origin),
        "capi.devices": Fact([str(device["arch"]) for device in answer.devices], asked),
        "capi.mapped": Fact({name: list(paths) for name, paths in answer.mapped.items()}, "/proc/self/maps"),
        **{f"capi.{name}": Fact(version or None, asked) for name, version in answer.versions.items()},
    }
