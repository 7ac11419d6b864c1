"""Findings about caches with kernels for another chip or version, or with miscompiled kernels.

rocmprobe moves no files. Each finding contains a command that moves the cache away.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.miopen_files import database_name
from rocmprobe.knowledge.stacks import limits
from rocmprobe.model.results import Fact, Finding, Machine

#: With the value 0, Triton compiles no buffer instructions.
_BUFFER_OPS = "AMDGCN_USE_BUFFER_OPS"
_CACHES = {"caches.triton": "Triton", "caches.inductor": "Inductor"}
_PLAIN = re.compile(r"[\w./+-]+")
#: Maximum number of files in a command.
_LISTED = 20


def caches(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each cache with kernels that are faulty or unusable on this machine."""
    machine = run.machine
    for name, title in _CACHES.items():
        fact = machine.facts.get(name, Fact())
        if isinstance(fact.value, dict) and machine.amd_gpus:
            yield from _compiled(machine, name, title, fact)
    yield from _miopen(machine)


def _compiled(machine: Machine, name: str, title: str, fact: Fact) -> Iterator[Finding]:
    """Yield a finding if the cache of Triton or Inductor has kernels that are wrong for this machine."""
    # Wrong kernels can stay in use, because the keys of these caches do not contain everything on which a
    # kernel depends.
    cache: Mapping[str, Any] = fact.value
    path = str(cache["path"])
    where = f"{path}: {_amounts(cache['isas'])}, from {fact.source}"
    if not cache["complete"]:
        where += "; only part of the cache was read"
    finding = name.replace(".", "-")
    number, broken = cache["buffer_ops"], _miscompiling(machine, set(cache["isas"]))
    if number and broken:
        title = f"{title}'s cache has kernels that were compiled without {_BUFFER_OPS}=0"
        evidence: tuple[str, ...] = (
            f"{number} of {cache['kernels']} kernels use buffer instructions",
            where,
            broken,
        )
        advice = (
            f"Set {_BUFFER_OPS}=0 and move the cache away, because its kernels still have the fault: "
            f"{_moving(path)}"
        )
        yield Finding(finding, "warning", "triton-writes-nothing", "triton", title, evidence, advice)
        return
    isas = _effective(machine)
    foreign = sorted(set(cache["isas"]) - isas) if isas else []
    version, versions = _base(machine.value("triton.version")), set(map(_base, cache["versions"]))
    if foreign:
        what = f"for another chip ({', '.join(foreign)})"
    elif version and versions - {version}:
        what = f"by another Triton ({', '.join(sorted(filter(None, versions - {version})))})"
    else:
        return
    title = f"{title}'s cache has kernels that were made {what}"
    evidence = (where, f"here: {', '.join(sorted(isas)) or 'unknown chip'}, Triton {version or 'unknown'}")
    advice = f"To rule it out as a cause, move the cache away: {_moving(path)}"
    yield Finding(finding, "info", "benign-warning", "triton", title, evidence, advice)


def _miscompiling(machine: Machine, isas: set[str]) -> str:
    """Return chips and source of a known miscompilation that affects cached kernels for this machine, or "".

    ``isas`` are the chips of the cached kernels.
    """
    chips = {_base_isa(gpu.native_isa.value) for gpu in machine.amd_gpus}
    for row in limits():
        if _BUFFER_OPS in row.env and chips & isas & set(row.gfx):
            return f"{', '.join(row.gfx)}: {row.source}"
    return ""


def _miopen(machine: Machine) -> Iterator[Finding]:
    fact = machine.facts.get("miopen.user_files", Fact())
    installed, names = machine.value("miopen.version"), _database_names(machine)
    version = ".".join(str(installed).split(".")[:3]) if installed else None
    other_gpu, other_version = [], []
    for file in fact.value or ():
        if names and file["gpu"] not in names:
            other_gpu.append(file)
        elif version and file["version"] and file["version"] != version:
            other_version.append(file)
    paths = [str(file["path"]) for file in (*other_gpu, *other_version)]
    if not paths:
        return
    said = [f"another GPU ({_distinct(other_gpu, 'gpu')})"] if other_gpu else []
    said += [f"another version ({_distinct(other_version, 'version')})"] if other_version else []
    title = f"MIOpen's databases and kernels were made for {' and '.join(said)}"
    evidence = (
        *paths[:_LISTED],
        f"here: {', '.join(sorted(names)) or 'unknown GPU'}, MIOpen {installed or 'unknown'}",
    )
    advice = (
        "The installed MIOpen ignores them for this ISA, but uses them again under an ISA override. "
        f"To rule them out as a cause, move them away: {_moving_files(paths)}"
    )
    yield Finding("caches-miopen", "info", "benign-warning", "miopen-find", title, evidence, advice)


def _distinct(files: Sequence[Mapping[str, Any]], key: str) -> str:
    return ", ".join(dict.fromkeys(str(file[key]) for file in files))


def _database_names(machine: Machine) -> set[str]:
    known = [(_base_isa(gpu.effective_isa.value), gpu.cus.value) for gpu in machine.amd_gpus]
    if not all(isa and cus for isa, cus in known):
        return set()
    return {database_name(str(isa), int(cus or 0)) for isa, cus in known}


def _effective(machine: Machine) -> set[str]:
    return {isa for gpu in machine.amd_gpus if (isa := _base_isa(gpu.effective_isa.value))}


def _base_isa(isa: Optional[str]) -> str:
    return str(isa or "").partition(":")[0]


def _base(version: Optional[str]) -> str:
    """Return a version without its local part, such as +rocm6.2."""
    return str(version or "").partition("+")[0]


def _amounts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} for {name}" for name, count in counts.items())


def _moving(path: str) -> str:
    word = _word(path)
    return f"`mv {word} {word}-$(date +%F)`"


def _moving_files(paths: Sequence[str]) -> str:
    """Return the shell command that moves the files at ``paths`` away."""
    folder = "~/miopen-$(date +%F)"
    # A database in use has extra files whose names begin with its path, so append "*".
    words = " ".join(f"{_word(path)}*" for path in paths[:_LISTED])
    more = " (then repeat for the files that `rocmprobe detect` still lists)" if len(paths) > _LISTED else ""
    return f"`mkdir -p {folder} && mv {words} {folder}/`{more}"


def _word(path: str) -> str:
    start = "~/" if path.startswith("~/") else ""
    rest = path[len(start) :]
    end = "$USER" if rest.endswith("torchinductor_$USER") else ""
    middle = rest[: -len(end)] if end else rest
    return start + (middle if not middle or _PLAIN.fullmatch(middle) else shlex.quote(middle)) + end


def unusable_databases(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each MIOpen database or cache that cannot be written, or that is on a network."""
    for name in ("miopen.user_db", "miopen.kernel_cache"):
        fact = run.machine.facts.get(name, Fact())
        place = fact.value or {}
        if not place.get("network") and place.get("writable", True):
            continue
        if not run.machine.value("miopen.version"):
            continue
        fault = f"is on {place['filesystem']}" if place.get("network") else "cannot be written"
        title = f"MIOpen's {'user database' if name.endswith('db') else 'kernel cache'} {fault}"
        evidence = (f"{place['path']}: {place['filesystem']}", fact.source)
        advice = "Point MIOPEN_USER_DB_PATH and MIOPEN_CUSTOM_CACHE_DIR to a folder on a local disk."
        finding = name.replace(".", "-").replace("_", "-")
        yield Finding(finding, "warning", "miopen-db-unusable", "miopen-find", title, evidence, advice)
