"""Audit of the data tables against copies of their sources.

``python -m rocmprobe.knowledge.audit SOURCE...`` prints one line for each row that disagrees. A source is a
folder, a file or an address. Its text decides what is compared:

- MIOpen: ``CMakeLists.txt`` (its version), ``src/`` (solvers and variables), ``driver/`` and ``docs/``
  (variables)
- TheRock: ``cmake/therock_amdgpu_targets.cmake``
- listings of wheels: ``https://download.pytorch.org/whl/torch/`` or an index of AMD

Exit codes: 0 if all rows agree, 1 if a row disagrees, 2 if a source cannot be read.
"""

from __future__ import annotations

import argparse
import re
import sys
import urllib.request
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Optional
from urllib.parse import unquote

from packaging.version import Version

from rocmprobe.knowledge.gpus import all_targets, target
from rocmprobe.knowledge.solvers import left_out, solvers
from rocmprobe.knowledge.stacks import has_code, stacks
from rocmprobe.knowledge.variables import variables
from rocmprobe.text.printing import print_stderr, say
from rocmprobe.text.reading import BadInput
from rocmprobe.text.tables import table
from rocmprobe.text.versions import version_numbers, within

_ADDRESS = re.compile(r"https?://")
_READ = ("*.cpp", "*.cpp.in", "*.hpp", "*.cmake", "*.rst", "*.html", "CMakeLists.txt")
_TIMEOUT_S = 60
#: Oldest Python that rocmprobe supports.
_OLDEST_PYTHON = (3, 9)
_PLATFORM = {"linux": "linux", "wsl": "linux", "windows": "win_"}
#: Libraries of compatibility.toml, and TheRock's names for them.
_LIBRARIES = {"rocblas": "rocBLAS", "hipblaslt": "hipBLASLt"}

_COMMENT = re.compile(r"//.*")
_VERSION = re.compile(r"rocm_setup_version\(\s*VERSION\s+(\d+\.\d+\.\d+)")
_REGISTRY = re.compile(r"SolverRegistrar::SolverRegistrar\(.*?\n\}", re.DOTALL)
_REGISTRATION = re.compile(r"\+\+id\b([^;]*);")
_SOLVER = re.compile(r",\s*(?:conv::)?(\w+)(<[\d, ]+>)?\{\},\s*miopenConvolutionAlgo(\w+)")
_OWN_NAME = re.compile(
    r"(\w+) final\b[^{]*\{\s*(?://[^\n]*\s*)*const std::string& SolverDbId\(\) const override\s*"
    r"\{\s*static const std::string \w+\{\"([^\"]+)\"\}"
)
_DECLARED = re.compile(
    r"MIOPEN_DECLARE_ENV_VAR(?:_(BOOL|UINT64|STR))?\(\s*([A-Z]\w+)\s*(?:,\s*(true|false|\d+)\s*)?[,)]"
)
_BOOLS = {"true": "1", "false": "0"}
_DOCUMENTED = re.compile(r"^\s*(?:[*|-]\s+)+``(MIOPEN_\w+)(?:=[^`]*)?``", re.MULTILINE)
_TARGET = re.compile(r'therock_add_amdgpu_target\(\s*(gfx\w+)\s+"([^"]*)"([^)]*)\)')
_WHEEL = re.compile(r"([\w.]+)-(\d[\w.!+]*)-(cp(\d)(\d+))-\3-([\w.]+)\.whl")
_PIN = re.compile(r"(\w+)(?:\{extra\})?==(\S+)")
_RELEASE = re.compile(r"[\d.]+\+rocm[\d.]+")


#: Name of the table, row, our content, content of the source.
Disagreement = tuple[str, str, str, str]


class Registered(NamedTuple):
    """A convolution solver in MIOpen's registry."""

    id: int
    algorithm: str


class BuildTarget(NamedTuple):
    """A GPU target of TheRock. ``options`` has its families and excluded projects."""

    product: str
    options: frozenset[str]


class Wheel(NamedTuple):
    project: str
    version: str
    python: tuple[int, int]
    platform: str


@dataclass
class Copies:
    """Facts from the copies of the sources.

    - ``own_names``: names of solvers in MIOpen's logs, keyed by class, if the two differ
    - ``declared``: type and default of each variable that MIOpen's sources declare
    - ``all_declared``: True if the sources were read as a whole
    """

    miopen: str = ""
    registry: dict[str, Registered] = field(default_factory=dict)
    own_names: dict[str, str] = field(default_factory=dict)
    declared: dict[str, tuple[str, str]] = field(default_factory=dict)
    all_declared: bool = False
    documented: set[str] = field(default_factory=set)
    targets: dict[str, BuildTarget] = field(default_factory=dict)
    wheels: set[Wheel] = field(default_factory=set)

    def read(self, text: str) -> None:
        """Add the facts of one file or page."""
        if "MIOpen" in text and (match := _VERSION.search(text)):
            self.miopen = match[1]
        if match := _REGISTRY.search(text):
            self.registry.update(_registered(_COMMENT.sub("", match[0])))
        self.own_names.update(_OWN_NAME.findall(text))
        self.all_declared |= "#define MIOPEN_DECLARE_ENV_VAR(" in text
        for kind, name, default in _DECLARED.findall(text):
            self.declared[name] = kind, _BOOLS.get(default, default)
        self.documented.update(_DOCUMENTED.findall(text))
        for gfx, product, options in _TARGET.findall(text):
            self.targets[gfx] = BuildTarget(product, frozenset(re.sub("#.*", "", options).split()))
        for project, version, _, major, minor, platform in _WHEEL.findall(unquote(text)):
            self.wheels.add(Wheel(project, version, (int(major), int(minor)), platform))

    @property
    def summary(self) -> str:
        """Text with the numbers of rows that were read, or "" if none were."""
        numbers = {
            "solvers": len(self.registry), "variables": len({*self.declared, *self.documented}),
            "targets": len(self.targets), "wheels": len(self.wheels),
        }  # fmt: skip
        words = [f"MIOpen {self.miopen}"] if self.miopen else []
        return ", ".join(words + [f"{number} {name}" for name, number in numbers.items() if number])


def _registered(text: str) -> Iterator[tuple[str, Registered]]:
    for number, match in enumerate(_REGISTRATION.finditer(text), 1):
        if "Primitive::" not in match[1] and (solver := _SOLVER.search(match[1])):
            name, arguments = solver[1], (solver[2] or "").replace(" ", "").replace(",", "-")
            if name == "ConvBinWinoRxS":
                name, arguments = "ConvBinWinogradRxSf" + arguments.strip("<>").replace("-", "x"), ""
            yield name + arguments, Registered(number, solver[3])


def _texts(source: str) -> Iterator[str]:
    try:
        if _ADDRESS.match(source):
            with urllib.request.urlopen(source, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                yield answer.read().decode("utf-8", "replace")
        elif Path(source).is_dir():
            for pattern in _READ:
                for path in sorted(Path(source).rglob(pattern)):
                    yield path.read_text("utf-8", "replace")
        else:
            yield Path(source).read_text("utf-8", "replace")
    except OSError as error:
        raise BadInput(f"cannot read {source}: {error}") from error


def read(sources: Sequence[str]) -> Copies:
    """Return the facts of all ``sources``. Raise BadInput if a source has none."""
    copies = Copies()
    for source in sources:
        # One source can repeat the facts of another.
        own = Copies()
        for text in _texts(source):
            own.read(text)
            copies.read(text)
        if not own.summary:
            raise BadInput(f"{source} has no solver, variable, target or wheel that the audit knows")
    return copies


def audit(copies: Copies) -> Iterator[Disagreement]:
    """Yield each row of the data tables that disagrees with the copies of the sources."""
    releases = table("rocm_releases")["release"]
    newest = max((row["miopen"] for row in releases), key=version_numbers)
    miopen = copies.miopen or newest
    if version_numbers(miopen) > version_numbers(newest):
        yield ("rocm_releases", "MIOpen", f"up to {newest}", miopen)
    if copies.registry:
        yield from _solvers(copies, miopen)
    rocm = [row["rocm"] for row in releases if row["miopen"] == miopen] or [releases[-1]["rocm"]]
    yield from _variables(copies, rocm[0], rocm[-1])
    if copies.targets:
        yield from _targets(copies.targets)
    yield from _wheels(copies.wheels)


def _solvers(copies: Copies, miopen: str) -> Iterator[Disagreement]:
    theirs = {copies.own_names.get(name, name): found for name, found in copies.registry.items()}
    for row in solvers():
        found, expected = theirs.pop(row.name, None), within(miopen, row.since, row.until)
        ours = f"in MIOpen {row.since or '2'} to {row.until or 'now'}"
        if found is None:
            if expected:
                yield "solvers", row.name, ours, f"not in {miopen}"
        elif not expected:
            if not left_out(row.name):
                yield "solvers", row.name, ours, f"in {miopen}, id {found.id}"
        elif (row.id, row.family.replace("naive", "Direct")) != found:
            yield "solvers", row.name, f"id {row.id}, {row.family}", f"id {found.id}, {found.algorithm}"
    for name, found in theirs.items():
        if not left_out(name):
            yield "solvers", name, "no row", f"id {found.id}, {found.algorithm}"


def _variables(copies: Copies, first: str, last: str) -> Iterator[Disagreement]:
    """Compare variables. ``first`` and ``last`` are the ROCm releases with this MIOpen."""
    known = {row.name: row for row in variables()}
    for name in sorted({*copies.declared, *copies.documented}):
        row = known.get(name)
        if row is None:
            if name.startswith("MIOPEN_"):
                yield "variables", name, "no row", "read"
        elif name in copies.declared:
            kind, default = copies.declared[name]
            if row.until and version_numbers(row.until) < version_numbers(first):
                yield "variables", name, f"until ROCm {row.until}", f"read in {first}"
            if row.of == "miopen" and (kind == "BOOL") != (row.values == "miopen-bool"):
                yield "variables", name, row.values or "text", kind
            if default and row.default and default != row.default:
                yield "variables", name, f"default {row.default}", f"default {default}"
    for name, row in known.items() if copies.all_declared else ():
        current = all(within(rocm, row.since, row.until) for rocm in (first, last))
        if row.of == "miopen" and current and name not in copies.declared:
            yield "variables", name, f"until {row.until or 'now'}", f"not in {last}"


def _targets(theirs: Mapping[str, BuildTarget]) -> Iterator[Disagreement]:
    of_amd = [stack for stack in stacks() if stack.kind.startswith("amd-")]
    for gfx, found in theirs.items():
        row = target(gfx)
        if row is None:
            yield "gpus", gfx, "no row", found.product
        elif not any(has_code(stack, gfx) for stack in of_amd):
            yield "gpus", gfx, "no wheel of AMD", "a target"
        elif isinstance(row.apu, bool) and row.apu != ("igpu-all" in found.options):
            yield "gpus", gfx, f"apu {row.apu}", f"apu {not row.apu}"
    for row in all_targets():
        if row.amd_wheels and row.gfx not in theirs:
            yield "gpus", row.gfx, "amd_wheels", "no target"
    for library in table("compatibility")["library"]:
        project = _LIBRARIES.get(library["library"])
        if project and not library["until"]:
            built = {gfx for gfx, found in theirs.items() if project not in found.options}
            for gfx in sorted(built.symmetric_difference(library["gfx"])):
                answers = ("not listed", "built") if gfx in built else ("listed", "not built")
                yield ("compatibility", f"{library['library']} since {library['since']}: {gfx}", *answers)


def _wheels(wheels: Collection[Wheel]) -> Iterator[Disagreement]:
    newest, kinds = _newest_torch(wheels), set()
    for stack in stacks():
        for project, version in _PIN.findall(" ".join(stack.packages)):
            found = [wheel for wheel in wheels if wheel[:2] == (project, version)]
            local = version.partition("+")[2]
            if any(wheel.project == project and wheel.version.endswith(f"+{local}") for wheel in wheels):
                for system in stack.systems:
                    if not any(_PLATFORM[system] in wheel.platform for wheel in found):
                        yield "stacks", f"{stack.name}: {project}", version, f"no wheel for {system}"
            if project != "torch":
                continue
            pythons = {wheel.python for wheel in found if wheel.python >= _OLDEST_PYTHON}
            if found and pythons != set(map(version_numbers, stack.python)):
                theirs = ", ".join(f"{major}.{minor}" for major, minor in sorted(pythons))
                yield "stacks", f"{stack.name}: python", ", ".join(stack.python), theirs
            # The first stack of each kind must have the newest torch for its ROCm.
            if stack.kind not in kinds and version != (later := _newest_torch(wheels, local) or version):
                yield "stacks", stack.name, version, later
            kinds.add(stack.kind)
            newest = newest if newest != version else None
    if newest:
        yield "stacks", "torch", "no row", newest


def _newest_torch(wheels: Iterable[Wheel], local: str = "") -> Optional[str]:
    """Return the newest release of torch for the newest ROCm, or for the ROCm in ``local``."""
    versions = {wheel.version: Version(wheel.version) for wheel in wheels if wheel.project == "torch"}
    ranks = {
        text: (version_numbers(str(version.local)[4:]), version)
        for text, version in versions.items()
        if _RELEASE.fullmatch(text) and (not local or version.local == local)
    }
    return max(ranks, key=ranks.__getitem__, default=None)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Print the disagreements and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m rocmprobe.knowledge.audit", description="Compare the data tables with their sources."
    )
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="a folder, a file or an address")
    try:
        copies = read(parser.parse_args(arguments).sources)
    except BadInput as error:
        print_stderr(error)
        return 2
    disagreements = list(audit(copies))
    for file, row, ours, theirs in disagreements:
        say(f"{file}.toml: {row}: ours: {ours}; theirs: {theirs}")
    say(f"{copies.summary}: {len(disagreements)} rows disagree")
    return int(bool(disagreements))


if __name__ == "__main__":
    sys.exit(main())
