"""What compilers make of the kernels: registers, LDS and the inner loops, for each chip."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_code import CLANG, HIPRTC, TARGETS, TILE_KERNELS, Code, NoCode, compiled, step

#: At most so many registers leave room for five waves on each SIMD of RDNA, which has 1024 for a lane.
_REGISTERS = 200
#: Bytes, of 64 KiB: two blocks of the largest tile fit on a compute unit.
_LDS = 32 * 1024


#: A compilation takes ten seconds and more: the chip of the kernels by the older compiler, and by the newer
#: one a chip with wavefronts of 64 lanes, in float16, whose loops are the longest.
pytestmark = pytest.mark.thorough
_MODULES = [
    (HIPRTC, TARGETS[0], "float16"),
    (CLANG, "gfx906", "float16"),
]


#: Floats that an instruction reads from LDS for a thread.
_READ_FLOATS = {
    f"ds_{word}{rest}": floats
    for word in ("read", "load")
    for rest, floats in (
        ("_b32", 1), ("_b64", 2), ("_b96", 3), ("_b128", 4), ("2_b32", 2), ("2st64_b32", 2), ("2_b64", 4),
        ("_2addr_b32", 2), ("_2addr_b64", 4), ("_2addr_stride64_b32", 2),
    )
}  # fmt: skip


@pytest.fixture(scope="module", params=_MODULES, ids="-".join)
def module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Code]:
    """The target and its code."""
    compiler, target, dtype = request.param
    folder = Path(tmp_path_factory.mktemp("code"))
    try:
        return target, compiled(compiler, target, dtype, folder)
    except NoCode as why:
        pytest.skip(str(why))


def test_no_kernel_needs_memory_of_its_own(module: tuple[str, Code]) -> None:
    _, code = module
    assert not [each.refusal for each in code.kernels.values() if each.refusal]


def test_tiles_keep_within_their_registers_and_lds(module: tuple[str, Code]) -> None:
    _, code = module
    for name, _ in TILE_KERNELS:
        kernel = code.kernels[name]
        assert kernel.vgprs <= _REGISTERS, kernel
        assert kernel.lds <= _LDS, kernel


def test_inner_loops_are_mostly_products_and_mostly_read_four_floats_at_once(
    module: tuple[str, Code],
) -> None:
    _, code = module
    for name, depth in TILE_KERNELS:
        loop = step(code.lines[name], 64 * depth)
        assert loop.share >= 0.8, (name, loop)
        reads = {each: count for each, count in loop.instructions.items() if each in _READ_FLOATS}
        # The compiler of ROCm 5.2 takes some of them apart in float16.
        floats = sum(_READ_FLOATS[each] * count for each, count in reads.items())
        at_once = 4 * (reads.get("ds_read_b128", 0) + reads.get("ds_load_b128", 0))
        assert at_once >= 0.8 * floats > 0, (name, reads)


def test_nothing_is_used_that_the_chip_lacks_or_fails_at(module: tuple[str, Code]) -> None:
    target, code = module
    used = {text.split()[0] for lines in code.lines.values() for _, text in lines}
    if target.startswith("gfx101"):
        # It hangs the shader there: llvm-project, AMDGPU.td, FeatureInstFwdPrefetchBug.
        assert not [name for name in used if name.startswith("s_inst_prefetch")]
    if target.startswith("gfx1010"):
        assert not [name for name in used if name.startswith("v_dot")]
    assert not [name for name in used if "atomic" in name or name.startswith(("scratch_", "buffer_"))]


def test_a_chip_with_dot_products_adds_two_products_at_once_in_float16(tmp_path: Path) -> None:
    try:
        code = compiled(HIPRTC, "gfx1012:xnack-", "float16", tmp_path)
    except NoCode as why:
        pytest.skip(str(why))
    for name, depth in TILE_KERNELS:
        assert not code.kernels[name].refusal
        used = [text.split()[0] for _, text in code.lines[name]]
        # The loop over a step of a sum, and the last step behind it.
        assert sum(each.startswith("v_dot2") for each in used) >= 2 * 64 * min(depth // 2, 4), name
