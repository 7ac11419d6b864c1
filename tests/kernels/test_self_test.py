"""The problems of the self-test run every kernel that can be chosen."""

from __future__ import annotations

import re
from itertools import product

from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD
from rocmprobe.kernels import exact, self_test
from rocmprobe.kernels.families import gemm, grouped
from rocmprobe.kernels.families.extents import Strides
from rocmprobe.kernels.sources import FAMILIES, source_text


def test_every_kernel_runs_with_and_without_a_split() -> None:
    ran: set[str] = set()
    named: set[str] = set()
    split = set()
    for plain, (name, family), direction, order in product(
        self_test.PROBLEMS,
        FAMILIES.items(),
        (FWD, BWD_DATA, BWD_WEIGHTS),
        (exact.contiguous, exact.channels_last),
    ):
        strides = {key: Strides.of(order(shape)) for key, shape in exact.shapes(plain).items()}
        for option in family.options(direction, plain, "float32", 1 << 24, 36, every=True):
            launches = family.prepare(
                direction,
                plain,
                "float32",
                option.variant,
                **strides,
                has_bias=False,
                cap=option.workspace_bytes,
            )
            assert launches is not None
            launched = {each.kernel for each in launches}
            assert launched <= option.kernels
            ran |= launched
            named |= option.kernels
            split.add((name, direction, "sum_splits" in launched))
    text = source_text("float32", (grouped, gemm))
    assert ran == named == set(re.findall(r"^(?:KERNEL|[A-Z]+_GEMM)\((\w+),", text, re.MULTILINE))
    assert len(ran - {"gather_pack", "weights_table", "sum_splits"}) == 15
    assert len(split) == 2 * 3 + 2 + 2
