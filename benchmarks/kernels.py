"""Registers, LDS, occupancy and share of products of every tile of the own kernels, by chip and compiler.

The figures are read from the compiled code, so no GPU is needed::

    python benchmarks/kernels.py -o benchmarks/results/kernel_tiles.md

Needs Debian's libamdhip64-5, clang-19, lld-19 and llvm-19. A missing compiler is left out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from figures import heading, publish, table

from rocmprobe.kernels.code_object import Kernel
from rocmprobe.kernels.families import gemm, reduction
from rocmprobe.kernels.families.gather_gemm import TILES
from rocmprobe.kernels.families.weights_gemm import WEIGHTS_TILES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kernels"))
from kernel_code import CLANG, HIPRTC, TARGETS, TILE_KERNELS, NoCode, compiled, step  # noqa: E402

DTYPE = "float32"


class Chip(NamedTuple):
    """Limits of a SIMD: registers per lane, their allocation granule and most waves. Also the SIMDs of a
    compute unit and the lanes of a wave.

    Source: LLVM's AMDGPUBaseInfo.cpp (getTotalNumVGPRs, getVGPRAllocGranule, getMaxWavesPerEU).
    """

    registers: int
    granule: int
    waves: int
    simds: int
    lanes: int


CHIPS = {
    "gfx1010:xnack-": Chip(1024, 8, 20, 2, 32),
    "gfx1012:xnack-": Chip(1024, 8, 20, 2, 32),
    "gfx1030": Chip(1024, 16, 16, 2, 32),
    "gfx1100": Chip(1536, 24, 16, 2, 32),
    "gfx906": Chip(256, 4, 10, 4, 64),
}
_LDS = 64 * 1024


def waves(chip: Chip, vgprs: int, lds: int, threads: int) -> float:
    """Return the waves on a SIMD if blocks of a kernel fill a compute unit (in CU mode)."""
    of_block = threads // chip.lanes
    by_registers = min(chip.waves, chip.registers // (-(-vgprs // chip.granule) * chip.granule))
    blocks = min(_LDS // lds, by_registers * chip.simds // of_block)
    return blocks * of_block / chip.simds


def columns() -> Iterator[tuple[str, dict[str, Kernel], dict[str, str]]]:
    """Yield for each compiler and target its name, its kernels, and the cell of each kernel."""
    threads = {tile.kernel(quads): tile.threads for tile in TILES for quads in (False, True)}
    threads.update({tile.kernel: tile.threads for tile in WEIGHTS_TILES})
    with tempfile.TemporaryDirectory() as folder:
        for compiler in (HIPRTC, CLANG):
            for target in TARGETS:
                try:
                    code = compiled(compiler, target, DTYPE, Path(folder), (reduction, gemm))
                except NoCode as why:
                    print(f"{compiler}, {target}: {why}", file=sys.stderr)
                    continue
                cells = {}
                for name, depth in TILE_KERNELS:
                    kernel = code.kernels[name]
                    if kernel.vgpr_spills or kernel.sgpr_spills or kernel.scratch:
                        raise SystemExit(f"{name} spills registers or needs scratch memory")
                    occupancy = waves(CHIPS[target], kernel.vgprs, kernel.lds, threads[name])
                    share = step(code.lines[name], 64 * depth).share
                    cells[name] = f"{kernel.vgprs}, {occupancy:g}, {100 * share:.0f} %"
                yield f"{compiler}, {target.partition(':')[0]}", code.kernels, cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    found = list(columns())
    if not found:
        raise SystemExit("no compiler was found")
    lines = [
        *heading("Tiles of the matrix products", "python benchmarks/kernels.py"),
        f"Read from the code for {DTYPE}; nothing was run. Each cell: VGPRs, waves on a SIMD, share of "
        "products among the vector instructions of a step. No kernel spills or has scratch memory.",
        "",
        *table(
            ("kernel", "LDS, KiB", *(name for name, _, _ in found)),
            (
                (name, f"{found[0][1][name].lds / 1024:.1f}", *(cells[name] for _, _, cells in found))
                for name, _ in TILE_KERNELS
            ),
        ),
    ]
    publish(lines, given.output)


if __name__ == "__main__":
    main()
