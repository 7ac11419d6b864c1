"""Which number a program gives each GPU, by the rules of ROCr and HIP."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.knowledge.visible_devices import mask_for, numbered, visible, with_numbers
from rocmprobe.model.results import Fact, Gpu, Machine

A, B = "GPU-4904ba80f4e6b186", "GPU-49aaaa80f4e6b186"
TWO = (A, None)
ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("uuids", "variables", "expected"),
    [
        (TWO, {}, (0, 1)),
        (TWO, {HIP: "1"}, (1,)),
        (TWO, {HIP: "1,0"}, (1, 0)),
        (TWO, {HIP: "", CUDA: "1"}, (1,)),
        (TWO, {HIP: "0", CUDA: "1"}, (0,)),
        (TWO, {HIP: "-1"}, ()),
        (TWO, {HIP: "0,7,1"}, (0,)),
        (TWO, {HIP: "0,0,1"}, (0, 1)),
        (TWO, {HIP: "0, 1"}, (0,)),
        (TWO, {HIP: A}, (0,)),
        (TWO, {ROCR: ""}, ()),
        (TWO, {ROCR: "1,0"}, (1, 0)),
        (TWO, {ROCR: "1, 0"}, (1, 0)),
        (TWO, {ROCR: "0,0,1"}, (0,)),
        (TWO, {ROCR: "0x1"}, (1,)),
        (TWO, {ROCR: "one"}, ()),
        (TWO, {ROCR: ",1"}, ()),
        (TWO, {ROCR: A.lower()}, (0,)),
        (TWO, {ROCR: "gpu-49"}, (0,)),
        ((A, B), {ROCR: "GPU-49"}, ()),
        ((A, B), {ROCR: "GPU-49a,0"}, (1, 0)),
        (TWO, {ROCR: "GPU-XX"}, ()),
        # HIP counts among what ROCr shows.
        (TWO, {ROCR: "1", HIP: "1"}, ()),
        (TWO, {ROCR: "1,0", HIP: "1"}, (0,)),
        ((A, B, None), {ROCR: "2,1", HIP: B}, (1,)),
    ],
)
def test_the_lists_compose(uuids, variables, expected):
    assert numbered(uuids, variables) == expected


LISTS = st.none() | st.lists(
    st.sampled_from(["0", "1", "2", "-1", "7", "", " 1", "0x2", "01", A, B, "GPU-4", "GPU-XX", "x"])
    | st.text(max_size=6),
    max_size=4,
).map(",".join)


@given(st.lists(st.sampled_from([A, B, None]), max_size=4), LISTS, LISTS, LISTS)
def test_whatever_is_set_each_gpu_has_one_number_at_most(uuids, rocr, hip, cuda):
    given_ = {name: value for name, value in ((ROCR, rocr), (HIP, hip), (CUDA, cuda)) if value is not None}
    found = numbered(uuids, given_)
    assert len(set(found)) == len(found)
    assert set(found) <= set(range(len(uuids)))
    assert set(found) <= set(numbered(uuids, {name: text for name, text in given_.items() if name == ROCR}))


def gpu(name, apu=False, uuid=None):
    return Gpu(vendor=Fact("amd"), name=Fact(name), apu=Fact(apu), uuid=Fact(uuid))


def test_masks_and_lists():
    # The runtime's order counts and not that of the addresses.
    numbered_ = with_numbers([gpu("integrated", apu=True), gpu("card")], {HIP: "1"})
    assert [each.index.value for each in numbered_] == [None, 0]
    assert numbered_[0].index.source == "hidden under HIP_VISIBLE_DEVICES=1"
    by_address = Machine(tuple(reversed(numbered_)))
    assert [each.name.value for each in visible(by_address)] == ["integrated", "card"]
    masked = dataclasses.replace(by_address, variables={HIP: Fact("1")})
    assert [each.name.value for each in visible(masked)] == ["card"]

    # The mask that keeps a card.
    integrated, card = with_numbers([gpu("integrated", apu=True), gpu("card", uuid=A)], {})
    machine = Machine((card, integrated))
    assert mask_for(machine, [card]) == "HIP_VISIBLE_DEVICES=1"
    assert mask_for(machine, [card, integrated]) == "HIP_VISIBLE_DEVICES=0,1"
    # HIP would count among what is left.
    chosen = dataclasses.replace(machine, variables={ROCR: Fact("1,0")})
    assert mask_for(chosen, [card]) == "ROCR_VISIBLE_DEVICES=1"
    assert mask_for(machine, [gpu("card", uuid=A)]) == f"ROCR_VISIBLE_DEVICES={A}"
    assert mask_for(machine, [gpu("card")]) is None
    assert mask_for(machine, []) is None
