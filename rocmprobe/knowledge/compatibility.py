"""Compatibility of a chip with a software stack.

A relation is a condition on chip and stack, e.g. that torch has code for the chip.
``data/compatibility.toml`` has the source of each relation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple, Optional

from rocmprobe.knowledge import gpus, wsl
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.stacks import Broken, Installed, known_to_break, stacks, system_of
from rocmprobe.knowledge.visible_devices import in_processor
from rocmprobe.model.facts import FactName
from rocmprobe.model.results import Fact, Gpu, Machine
from rocmprobe.text.tables import Row, rows, table
from rocmprobe.text.versions import version_numbers, within

_NUMBER = re.compile(r"\d{1,2}\.\d{1,2}")
_KERNEL = re.compile(r"\d{1,2}\.\d{1,3}(?:\.\d{1,3})?")
_FIRST_OF_THEROCK = (7, 9)
_OTHER_BUILDS = (("+cu", "cuda"), ("+cpu", "cpu"))
FIRST = ("card", "processor")


@dataclass(frozen=True)
class Combination:
    """A chip and a software stack.

    - ``amd``: True if the machine has an AMD GPU
    - ``gfx``: native ISA
    - ``effective``: ISA that the runtime uses
    - ``override``: value of HSA_OVERRIDE_GFX_VERSION
    - ``torch``: version with suffix, e.g. "2.12.0+rocm10.1.0"
    - ``rocm``, ``kernel``: versions of ROCm and Linux, beginning with MAJOR.MINOR
    - ``torch_targets``, ``rocblas_targets``: targets for which the installed library has code
    - ``system``: one of ``stacks.SYSTEMS``
    - ``atomics``: True if the card can use PCIe atomics
    - ``primitive``: operation that MIOpen had to compute, e.g. "batch-norm"
    - ``package``: targets in the name of the installed package, e.g. "gfx110X" or "gfx1100 gfx1101"
    - ``torch_kind``: "rocm", "cuda" or "cpu", if torch itself reports it
    - ``first``: "card" if device 0 is a graphics card, "processor" if it is part of a processor, None if all
      GPUs are of one kind or device 0 is unknown
    """

    amd: bool = False
    gfx: Optional[str] = None
    effective: Optional[str] = None
    override: Optional[str] = None
    torch: Optional[str] = None
    rocm: Optional[str] = None
    kernel: Optional[str] = None
    system: Optional[str] = None
    torch_targets: Optional[tuple[str, ...]] = None
    rocblas_targets: Optional[tuple[str, ...]] = None
    atomics: Optional[bool] = None
    primitive: Optional[str] = None
    package: Optional[str] = None
    torch_kind: Optional[str] = None
    first: Optional[str] = None

    @property
    def isa(self) -> Optional[str]:
        """ISA for which programs need code: the effective ISA if known, else the native ISA."""
        return self.effective or self.gfx

    @property
    def poses(self) -> bool:
        """True if the runtime treats the chip as a different chip."""
        return bool(self.gfx and self.effective and self.gfx != self.effective)

    @property
    def build(self) -> Optional[str]:
        """Kind of PyTorch build: "cuda", "cpu", or None if ROCm or unknown."""
        if self.torch_kind:
            return self.torch_kind if self.torch_kind != "rocm" else None
        return next((name for suffix, name in _OTHER_BUILDS if suffix in (self.torch or "")), None)

    @property
    def rocm_number(self) -> Optional[str]:
        """MAJOR.MINOR of torch's ROCm, or of the installed ROCm if torch's ROCm is unknown."""
        suffix = (self.torch or "").partition("+rocm")[2]
        match = _NUMBER.match(suffix) or _NUMBER.search(self.rocm or "")
        return match[0] if match else None

    @property
    def torch_number(self) -> Optional[str]:
        """MAJOR.MINOR of the torch version."""
        match = _NUMBER.match((self.torch or "").strip())
        return match[0] if match else None


class Relation(Row, frozen=True):
    """A condition on chip and stack: one [[relation]] in data/compatibility.toml."""

    name: str
    asks: str
    source: str


@dataclass(frozen=True)
class Answer:
    """The result of a relation for a chip and a stack.

    - ``certain``: True if the result was read from the machine, False if it was published or reported
    - ``stops``: False if programs can run although the relation does not hold
    - ``cause``: cause of failures if the relation does not hold, or "" if unknown
    """

    relation: Relation
    holds: bool
    certain: bool
    says: str
    source: str
    stops: bool = True
    cause: str = ""


class _Result(NamedTuple):
    holds: bool
    certain: bool
    says: str
    source: str
    stops: bool = True
    cause: str = ""


@lru_cache(maxsize=1)
def relations() -> tuple[Relation, ...]:
    """Return every relation, in the order of data/compatibility.toml."""
    return rows("compatibility", "relation", Relation)


def of_machine(machine: Machine, gpu: Gpu) -> Combination:
    """Return the combination of ``gpu`` and the software on ``machine``."""
    kernel, name = machine.value("kernel.release"), machine.value("os.name")
    in_wsl = machine.value("container.wsl") in ("WSL1", "WSL2")
    return Combination(
        amd=bool(machine.amd_gpus),
        gfx=gpu.native_isa.value or None,
        effective=gpu.effective_isa.value or None,
        override=machine.variables.get(OVERRIDE, Fact()).value or None,
        torch=machine.value("torch.version") or None,
        rocm=machine.value("torch.hip") or machine.value("rocm.version") or None,
        kernel=kernel or None,
        system="wsl" if in_wsl else system_of(name, kernel) if name or kernel else None,
        torch_targets=_held(machine, "torch.targets"),
        rocblas_targets=_held(machine, "rocblas.targets"),
        atomics=gpu.pcie_atomics.value,
        torch_kind=machine.value("torch.kind") or None,
        first=first_device(machine),
    )


def first_device(machine: Machine) -> Optional[str]:
    """Return the kind of the AMD GPU that is device 0, "card" or "processor".

    Return None if all AMD GPUs are of one kind, or if device 0 is unknown.
    """
    listed = [gpu for gpu in machine.amd_gpus if gpu.order.value is not None]
    if len({in_processor(gpu) for gpu in listed}) < len(FIRST):
        return None
    first = next((gpu for gpu in listed if gpu.index.value == 0), None)
    return FIRST[in_processor(first)] if first else None


def _held(machine: Machine, name: FactName) -> Optional[tuple[str, ...]]:
    targets = machine.value(name)
    return tuple(targets) if targets else None


def answers(combination: Combination) -> tuple[Answer, ...]:
    """Return the result of each relation for ``combination``.

    Skip relations that do not apply or that need unknown facts.
    """
    return tuple(
        Answer(relation, *result)
        for relation in relations()
        for result in _CHECKS[relation.name](combination)
    )


def answer(combination: Combination, name: str) -> Optional[Answer]:
    """Return the result of the relation ``name``, or None if the relation cannot be checked.

    Raise KeyError if the name is unknown.
    """
    relation = next((row for row in relations() if row.name == name), None)
    if relation is None:
        raise KeyError(name)
    return next((Answer(relation, *result) for result in _CHECKS[name](combination)), None)


def failing(answers: Iterable[Answer]) -> tuple[Answer, ...]:
    """Return the results in ``answers`` that prevent programs from running."""
    return tuple(answer for answer in answers if not answer.holds and answer.stops)


def _torch_is_for_amd(combination: Combination) -> Iterator[_Result]:
    if combination.amd and combination.build:
        name = combination.build.upper()
        yield _Result(
            False, True, f"the installed PyTorch is a {name} build", f"its version {combination.torch}"
        )
    elif combination.amd and (combination.torch_kind == "rocm" or "rocm" in (combination.torch or "")):
        yield _Result(
            True, True, "the installed PyTorch is a build for ROCm", f"its version {combination.torch}"
        )


def _override_is_accepted(combination: Combination) -> Iterator[_Result]:
    if combination.override:
        isa = gpus.isa_of_override(combination.override)
        yield _Result(
            isa is not None,
            True,
            f"the override names {isa}"
            if isa
            else "the value of the override is not three numbers with dots: the runtime rejects it "
            "and finds no GPU",
            "ROCT src/topology.c",
        )


def _override_is_read(combination: Combination) -> Iterator[_Result]:
    if combination.override and combination.system == "windows":
        says = "HSA_OVERRIDE_GFX_VERSION is read on Linux only"
        yield _Result(False, True, says, "ROCT src/topology.c is not part of ROCm on Windows")


def _silicon_fits_override(combination: Combination) -> Iterator[_Result]:
    silicon, code = gpus.target(combination.gfx), gpus.target(combination.effective)
    if not combination.poses or combination.gfx is None:
        return
    reported = [row for row in _known_to_break(combination) if row.effective]
    if reported:
        yield _Result(False, False, _clause(reported[0].title), reported[0].source)
    elif gpus.missing_features(combination.gfx, combination.effective):
        says = (
            f"the override selects code for {combination.effective}, which may use features that "
            f"{combination.gfx} lacks"
        )
        other_encoding = combination.gfx[:-2] != str(combination.effective)[:-2]
        yield _Result(False, False, says, "gpus.toml (LLVM AMDGPU.td)", stops=other_encoding)
    elif silicon and code:
        says = f"{combination.gfx} executes all instructions of {combination.effective}"
        yield _Result(True, False, says, "gpus.toml (LLVM AMDGPU.td)")


def _torch_has_code(combination: Combination) -> Iterator[_Result]:
    if combination.isa and combination.torch_targets is not None:
        holds = has_code_for(Fact(combination.torch_targets), combination.isa)
        says = f"the installed PyTorch has {'' if holds else 'no '}code for the chip that the runtime sees"
        yield _Result(holds, True, says, "the code objects in libtorch_hip.so")


def _wheel_has_code(combination: Combination) -> Iterator[_Result]:
    if (
        combination.torch_targets is not None
        or combination.build
        or not combination.isa
        or _of_amd(combination)
    ):
        return
    held = (
        gpus.in_wheel(combination.isa, combination.torch_number, combination.rocm_number)
        if combination.torch
        else None
    )
    if held is not None:
        says = (
            "official wheels of this version have code for the chip"
            if held
            else "no official wheel of this version has code for the chip"
        )
        yield _Result(held, False, says, "gpus.toml")


def _amd_wheel_has_code(combination: Combination) -> Iterator[_Result]:
    row = gpus.target(combination.isa)
    if (
        row
        and combination.torch_targets is None
        and combination.torch
        and not combination.build
        and _of_amd(combination)
    ):
        says = f"AMD's index of wheels has {'a' if row.amd_wheels else 'no'} package with code for {row.gfx}"
        yield _Result(row.amd_wheels, False, says, "gpus.toml")


def _package_has_code(combination: Combination) -> Iterator[_Result]:
    if combination.package and combination.isa and gpus.target(combination.isa):
        patterns = [
            name.lower().replace("x", "?").replace("gf?", "gfx") for name in combination.package.split()
        ]
        holds = any(fnmatchcase(combination.isa, pattern) for pattern in patterns)
        with_or_without = "with" if holds else "without"
        says = f"the installed package is for {combination.package}, {with_or_without} {combination.isa}"
        yield _Result(holds, False, says, "the name of the package or of its index")


def _of_amd(combination: Combination) -> bool:
    """Return True if only AMD's index has a ROCm build of torch for ``combination``."""
    # PyTorch's index has no ROCm build for Windows or for a ROCm newer than PyTorch's stacks.
    newest = max(version_numbers(stack.rocm) for stack in stacks() if stack.kind == "official")
    number = combination.rocm_number
    return combination.system == "windows" or bool(number and version_numbers(number) > newest)


def _runtime_knows_chip(combination: Combination) -> Iterator[_Result]:
    number = combination.rocm_number
    if number is None or combination.poses:
        return
    for row in _rows("runtime"):
        if combination.gfx in row["gfx"]:
            holds = version_numbers(number) >= version_numbers(row["since"])
            yield _Result(
                holds,
                False,
                _known_since("ROCm", number, combination.gfx, row["since"], holds),
                row["source"],
            )
            return


def _kernel_knows_chip(combination: Combination) -> Iterator[_Result]:
    match = _NUMBER.search(combination.kernel or "")
    if match is None or combination.system not in (None, "linux"):
        return
    number = version_numbers(match[0])
    for row in _rows("kernel"):
        holds = number >= version_numbers(row["since"])
        if combination.gfx in row["gfx"] and (holds or number <= version_numbers(row["before"])):
            yield _Result(
                holds,
                False,
                _known_since("Linux", match[0], combination.gfx, row["since"], holds),
                row["source"],
            )
            return


def _known_since(what: str, number: str, gfx: Optional[str], since: str, holds: bool) -> str:
    if holds:
        return f"{what} {number} knows {gfx}"
    return f"{what} {number} does not support {gfx}; {since} is the first that does"


def _rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table("compatibility")[name]
    return rows


def _rocblas_has_kernels(combination: Combination) -> Iterator[_Result]:
    isa = combination.isa
    if isa and combination.rocblas_targets is not None:
        holds = has_code_for(Fact(combination.rocblas_targets), isa)
        says = f"the installed rocBLAS has {'' if holds else 'no '}files for the chip that the runtime sees"
        yield _Result(holds, True, says, "the names of rocBLAS's files")
    else:
        yield from _in_library("rocblas", "rocBLAS", combination)


def _hipblaslt_has_kernels(combination: Combination) -> Iterator[_Result]:
    for result in _in_library("hipblaslt", "hipBLASLt", combination):
        yield result._replace(stops=False)


def _miopen_has_databases(combination: Combination) -> Iterator[_Result]:
    for result in _in_library("miopen-databases", "MIOpen", combination, "databases"):
        means = "" if result.holds else ": its first calls compile and measure kernels"
        yield result._replace(stops=False, says=f"{result.says}{means}")


def _in_library(name: str, title: str, combination: Combination, what: str = "kernels") -> Iterator[_Result]:
    """Yield one result, on whether AMD's build of the library ``name`` has ``what`` for the chip.

    Yield nothing if this is unknown. ``what`` is "kernels" or "databases". ``title`` is the library's name in
    the text of the result.
    """
    number, isa = combination.rocm_number, combination.isa
    if number is None or isa is None or gpus.target(isa) is None:
        return
    # Before TheRock, the HIP SDK for Windows had other targets than ROCm for Linux.
    if combination.system == "windows" and version_numbers(number) < _FIRST_OF_THEROCK:
        return
    for row in _rows("library"):
        if row["library"] == name and within(number, row["since"], row["until"]):
            holds = isa in row["gfx"]
            says = f"{title} of ROCm {number} has {'' if holds else 'no '}{what} for {isa}"
            yield _Result(holds, False, says, row["source"])
            return


def _miopen_compiles_primitive(combination: Combination) -> Iterator[_Result]:
    for row in _rows("primitive"):
        if combination.primitive == row["primitive"] and combination.isa in gpus.expand(row["gfx"]):
            yield _Result(False, False, f"{row['says']} {combination.isa}", row["source"], stops=False)
            return


def _wsl_takes_chip(combination: Combination) -> Iterator[_Result]:
    if combination.system != "wsl" or combination.gfx is None:
        return
    for row in wsl.families():
        if row.name == gpus.family(combination.gfx):
            yield _Result(row.works != "no", False, _clause(row.text), row.source)


def _first_device_is_a_card(combination: Combination) -> Iterator[_Result]:
    if combination.first in FIRST:
        says = (
            "the first GPU that programs see is the card"
            if combination.first == "card"
            else "the first GPU that programs see is the one in the processor, not the card"
        )
        yield _Result(
            combination.first == "card",
            True,
            says,
            "the order of GPUs in ROCr, and the variables that select GPUs",
            stops=False,
        )


def _stack_is_not_known_to_break(combination: Combination) -> Iterator[_Result]:
    if combination.poses:
        return
    for row in _known_to_break(combination):
        yield _Result(False, False, _clause(row.title), row.source, cause=row.cause)


def _known_to_break(combination: Combination) -> tuple[Broken, ...]:
    kernel = _KERNEL.search(combination.kernel or "")
    return known_to_break(
        Installed(
            combination.gfx,
            combination.isa,
            combination.rocm_number,
            combination.torch_number,
            combination.atomics,
            combination.system,
            kernel[0] if kernel else None,
        )
    )


def _clause(sentence: str) -> str:
    return sentence.rstrip(".")


_CHECKS: Mapping[str, Callable[[Combination], Iterator[_Result]]] = {
    "torch-is-for-amd": _torch_is_for_amd,
    "override-is-accepted": _override_is_accepted,
    "override-is-read": _override_is_read,
    "silicon-fits-override": _silicon_fits_override,
    "torch-has-code": _torch_has_code,
    "wheel-has-code": _wheel_has_code,
    "package-has-code": _package_has_code,
    "amd-wheel-has-code": _amd_wheel_has_code,
    "runtime-knows-chip": _runtime_knows_chip,
    "kernel-knows-chip": _kernel_knows_chip,
    "rocblas-has-kernels": _rocblas_has_kernels,
    "hipblaslt-has-kernels": _hipblaslt_has_kernels,
    "miopen-has-databases": _miopen_has_databases,
    "miopen-compiles-primitive": _miopen_compiles_primitive,
    "wsl-takes-chip": _wsl_takes_chip,
    "first-device-is-a-card": _first_device_is_a_card,
    "stack-is-not-known-to-break": _stack_is_not_known_to_break,
}


# ---- overrides that are unnecessary, because the installed libraries have code for the chip itself -------

#: Libraries that need compiled code for the chip. MIOpen does not, because it compiles missing kernels.
_NAMES = {"torch": "PyTorch", "rocblas": "rocBLAS"}


class Needless(NamedTuple):
    """Advice to remove an unnecessary override, and the facts that support the advice."""

    advice: str
    sources: tuple[str, ...]


def has_code_for(targets: Fact, isa: str) -> bool:
    """Return True if ``targets`` include ``isa`` or its family.

    ``targets`` is a fact such as ``torch.targets``. Examples of a family are gfx11-generic and gfx101x.
    """
    family = {f"{isa[:-2]}-{isa[-2]}-generic", f"{isa[:-2]}-generic", f"{isa[:-1]}x"}
    bases = {target.partition(":")[0] for target in targets.value or ()}
    return isa in bases or bool(family & bases)


def libraries_with_code(targets: Mapping[str, Fact], isa: Optional[str]) -> tuple[str, ...]:
    """Return the names of the libraries, "torch" and "rocblas", that are known to have code for ``isa``.

    Return () if one library is known to lack the code.
    """
    known = {name: targets[name] for name in _NAMES if name in targets and targets[name].value is not None}
    # Most programs need both libraries.
    return tuple(known) if isa and all(has_code_for(fact, isa) for fact in known.values()) else ()


def needless(machine: Machine, gpu: Gpu) -> Optional[Needless]:
    """Return advice to remove an override of ``gpu`` that the libraries do not need, else None."""
    native, effective = gpu.native_isa.value, gpu.effective_isa.value
    if not native or not effective or native == effective:
        return None
    targets = {name: machine.facts.get(f"{name}.targets", Fact()) for name in _NAMES}
    names = libraries_with_code(targets, native)
    if not names:
        return None
    variables = [name for name in machine.variables if name.startswith(OVERRIDE)] or [OVERRIDE]
    what = " and ".join(_NAMES[name] for name in names)
    verb = "holds" if len(names) == 1 else "hold"
    return Needless(
        f"Run `unset {' '.join(variables)}` and try again: the installed {what} {verb} code for {native} "
        "itself.",
        tuple(
            f"{name}.targets: {' '.join(targets[name].value)}, from {targets[name].source}" for name in names
        ),
    )
