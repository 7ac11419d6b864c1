"""What a kernel's machine code does in a step of its sum, by llvm-objdump."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

_FUNCTION = re.compile(r"^[0-9a-f]+ <(\w+)>:$")
_LINE = re.compile(r"^\s+(\S.*?)\s*// ([0-9A-F]+):")
_TARGET = re.compile(r"<\w+\+0x([0-9a-f]+)>")
_PRODUCT = re.compile(r"v_(dual_)?(pk_)?(fmac|fma|mac|mad|fmaak|fmamk)(_mix)?_f")


def program() -> Optional[str]:
    """llvm-objdump, one that knows gfx1100."""
    return next(filter(None, (shutil.which(f"llvm-objdump-{number}") for number in range(21, 15, -1))), None)


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


def functions(code: Path, objdump: str) -> dict[str, list[tuple[int, str]]]:
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
        if text.startswith("s_cbranch") and " -> " in text:
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
