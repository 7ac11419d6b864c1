"""The kernels' code for AMD GPUs, by the compilers of Debian 12 and without a GPU: hiprtc of ROCm 5.2.3 and
clang 19. What it holds, and what a wave does in a step of a sum, by llvm-objdump."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from rocmprobe.kernels.code_object import Kernel, kernels
from rocmprobe.kernels.families.gather_gemm import TILES
from rocmprobe.kernels.families.weights_gemm import WEIGHTS_TILES
from rocmprobe.kernels.sources import PARTS, source_text

TARGETS = ("gfx1010:xnack-", "gfx1012:xnack-", "gfx1030", "gfx1100", "gfx906")
#: The kernels of products of matrices, with the depth of a step.
TILE_KERNELS = (
    *(
        (tile.kernel(quads), tile.depth)
        for quads in (False, True)
        for tile in TILES
        if not (quads and tile.wide)
    ),
    *((tile.kernel, tile.depth) for tile in WEIGHTS_TILES),
)
HIPRTC, CLANG = "hiprtc 5.2.3", "clang 19"
_LIBRARY = "libamdhip64.so.5"
#: In a process of its own: this hiprtc ends it for a chip that it does not know.
_COMPILE = """
import sys
from rocmprobe.kernels.compilation import options
from rocmprobe.runtimes.rtc import Rtc
library, target, source, code = sys.argv[1:]
text = open(source, encoding="utf-8").read()
open(code, "wb").write(Rtc(library).compile(text, options(target))[0])
"""
_FUNCTION = re.compile(r"^[0-9a-f]+ <(\w+)>:$")
_LINE = re.compile(r"^\s+(\S.*?)\s*// ([0-9A-F]+):")
_TARGET = re.compile(r"<\w+\+0x([0-9a-f]+)>")
_PRODUCT = re.compile(r"v_(dual_)?(pk_)?(fmac|fma|mac|mad|fmaak|fmamk)(_mix)?_f")


class NoCode(Exception):
    """Why there is no code: a compiler or a disassembler that is not installed, or a chip that one does not
    know."""


@dataclass(frozen=True)
class Code:
    """A module for a target; ``lines`` are the instructions of each kernel, with their addresses."""

    kernels: dict[str, Kernel]
    lines: dict[str, list[tuple[int, str]]]


@dataclass(frozen=True)
class Loop:
    """Instructions that a wave executes in one step of the sum, by name; halves of a pair count as two."""

    instructions: Counter[str]

    @property
    def products(self) -> int:
        return sum(count for name, count in self.instructions.items() if _PRODUCT.match(name))

    @property
    def vector(self) -> int:
        """Vector ALU instructions, the products among them."""
        return sum(count for name, count in self.instructions.items() if name.startswith("v_"))

    @property
    def share(self) -> float:
        return self.products / self.vector


@cache
def compiled(
    compiler: str, target: str, dtype: str, folder: Path, parts: tuple[ModuleType, ...] = PARTS
) -> Code:
    """The module of a dtype, or ``parts`` of it. Raises NoCode."""
    if compiler == HIPRTC and target == "gfx1100":
        raise NoCode("ROCm 5.2 does not know gfx1100")
    objdump = next(
        filter(None, map(shutil.which, ("llvm-objdump-19", "llvm-objdump-20", "llvm-objdump"))), None
    )
    if objdump is None:
        raise NoCode("no llvm-objdump 19 (Debian's llvm-19)")
    name = re.sub(r"\W", "-", f"{compiler}-{target}-{dtype}")
    source, code = folder / f"{name}.hip", folder / f"{name}.o"
    source.write_text(source_text(dtype, parts), "utf-8")
    command = [sys.executable, "-c", _COMPILE, _LIBRARY, target, str(source), str(code)]
    if compiler == CLANG:
        if not shutil.which("clang-19") or not shutil.which("ld.lld-19"):
            raise NoCode("no clang 19 (Debian's clang-19 and lld-19)")
        command = [
            "clang-19", "-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "--no-gpu-bundle-output",
            f"--offload-arch={target}", "-std=c++17", "-O3",
            *(() if target.startswith("gfx9") else ("-mcumode",)), str(source), "-o", str(code),
        ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "LoadFailed" in done.stderr:
        raise NoCode("no hiprtc of ROCm 5.2 (Debian's libamdhip64-5)")
    assert done.returncode == 0, done.stderr
    return Code(kernels(code.read_bytes()), _functions(code, objdump))


def _functions(code: Path, objdump: str) -> dict[str, list[tuple[int, str]]]:
    """The instructions of each kernel, with their addresses."""
    done = subprocess.run([objdump, "-d", str(code)], capture_output=True, text=True, check=True)
    found: dict[str, list[tuple[int, str]]] = {}
    lines: list[tuple[int, str]] = []
    for line in done.stdout.splitlines():
        if name := _FUNCTION.match(line):
            lines = found.setdefault(name.group(1), [])
        elif instruction := _LINE.match(line):
            lines.append((int(instruction.group(2), 16), line.split("//")[0].strip() + _suffix(line)))
    return found


def _suffix(line: str) -> str:
    target = _TARGET.search(line)
    return f" -> {target.group(1)}" if target else ""


def step(lines: list[tuple[int, str]], products: int) -> Loop:
    """The loop over the steps of a sum, of which each has so many ``products`` for a thread. It writes
    to LDS; a loop inside of it is counted as often as it takes to come to all of them."""
    start = lines[0][0]
    loops = []
    for address, text in lines:
        if text.startswith(("s_cbranch", "s_branch")) and " -> " in text:
            target = start + int(text.rpartition(" -> ")[2], 16)
            if target <= address:
                loops.append((target, address))
    outer = min(
        (each for each in loops if _writes_lds(_between(lines, each)) and _products(_between(lines, each))),
        key=lambda each: each[1] - each[0],
    )
    inner = [each for each in loops if outer[0] <= each[0] and each[1] <= outer[1] and each != outer]
    counted = _between(lines, outer)
    for each in inner:
        inside = _between(lines, each)
        missing, extra = products - _products(counted), _products(inside)
        assert extra, "a loop without products inside of the loop over the steps"
        assert missing % extra == 0, (products, missing, extra)
        for name, count in inside.items():
            counted[name] += count * (missing // extra)
    assert _products(counted) == products
    return Loop(counted)


def _writes_lds(counted: Counter[str]) -> bool:
    return any(name.startswith(("ds_write", "ds_store")) for name in counted)


def _products(counted: Counter[str]) -> int:
    return Loop(counted).products


def _between(lines: list[tuple[int, str]], addresses: tuple[int, int]) -> Counter[str]:
    first, last = addresses
    halves = (
        half.split()[0] for address, text in lines if first <= address <= last for half in text.split(" :: ")
    )
    return Counter(halves)
