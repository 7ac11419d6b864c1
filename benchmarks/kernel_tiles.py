"""Registers, LDS, occupancy and share of products of every tile, for each chip and compiler.

The figures are read from the compiled code, so no GPU is needed::

    python benchmarks/kernel_tiles.py -o results/kernel_tiles.json -t results/kernel_tiles.md

Needs Debian's libamdhip64-5, clang-19, lld-19 and llvm-19. A missing compiler is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from figures import publish

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


def figures() -> dict[str, Any]:
    """Return the figures by compiler, target and kernel."""
    threads = {tile.kernel(quads): tile.threads for tile in TILES for quads in (False, True)}
    threads.update({tile.kernel: tile.threads for tile in WEIGHTS_TILES})
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for compiler in (HIPRTC, CLANG):
            for target in TARGETS:
                try:
                    code = compiled(compiler, target, DTYPE, Path(folder), (reduction, gemm))
                except NoCode as why:
                    print(f"{compiler}, {target}: {why}", file=sys.stderr)
                    continue
                found.setdefault(compiler, {})[target] = {
                    name: {
                        "vgprs": kernel.vgprs,
                        "sgprs": kernel.sgprs,
                        "spills": kernel.vgpr_spills + kernel.sgpr_spills,
                        "scratch_bytes": kernel.scratch,
                        "lds_bytes": kernel.lds,
                        "waves_per_simd": waves(CHIPS[target], kernel.vgprs, kernel.lds, threads[name]),
                        "product_share": round(step(code.lines[name], 64 * depth).share, 3),
                    }
                    for name, depth in TILE_KERNELS
                    for kernel in (code.kernels[name],)
                }
    return {"dtype": DTYPE, "kernels": found}


def table(measured: Mapping[str, Any]) -> str:
    """Return the figures as Markdown, with a row for each kernel and a column for each compiler and
    target."""
    columns = [(compiler, target) for compiler, by in measured["kernels"].items() for target in by]
    lines = [
        "# Tiles of the products of matrices",
        "",
        f"Read from the code for {measured['dtype']}, by `benchmarks/kernel_tiles.py`; nothing was run. Each "
        "cell: VGPRs, waves on a SIMD, share of products among the vector instructions of a step of the sum. "
        "No kernel spills or has scratch memory.",
        "",
        "| kernel | LDS, KiB | " + " | ".join(f"{c}, {t.partition(':')[0]}" for c, t in columns) + " |",
        "|---|---:|" + "---:|" * len(columns),
    ]
    for name, _ in TILE_KERNELS:
        cells = [measured["kernels"][compiler][target][name] for compiler, target in columns]
        assert not any(each["spills"] or each["scratch_bytes"] for each in cells), name
        shown = (
            f"{each['vgprs']}, {each['waves_per_simd']:g}, {each['product_share']:.0%}".replace("%", " %")
            for each in cells
        )
        lines.append(f"| {name} | {cells[0]['lds_bytes'] / 1024:.1f} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="JSON")
    parser.add_argument("-t", "--table", type=Path, help="Markdown")
    parser.add_argument("-i", "--input", type=Path, help="figures of before, instead of new ones")
    given = parser.parse_args()
    measured = json.loads(given.input.read_text("utf-8")) if given.input else figures()
    if not given.input:
        publish(measured, given.output)
    if given.table:
        given.table.write_text(table(measured), "utf-8")


if __name__ == "__main__":
    main()
