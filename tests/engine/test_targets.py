"""Which devices a run is about under each driver, and where the facts of a GPU come from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stand_in_libraries import build

from rocmprobe.engine.targets import targets_of
from rocmprobe.knowledge.visible_devices import with_numbers
from rocmprobe.model.results import BadInput, Fact, Gpu, Machine, NothingToTest

CARD = Gpu(
    native_isa=Fact("gfx1010", "kernel driver"),
    effective_isa=Fact("gfx1030", "override"),
    vendor=Fact("amd", "PCI"),
)


def machine(kind, *gpus):
    facts = {"torch.kind": Fact(kind, "torch"), "torch.version": Fact("2.4.0", "torch")} if kind else {}
    return Machine(gpus, facts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def stand_in(folder, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    return folder


@pytest.mark.parametrize(
    ("kind", "gpus", "device", "driver", "expected"),
    [
        (None, (), "auto", "auto", {"cuda:0": ("capi",)}),
        (None, (CARD,), "auto", "auto", {"cuda:0": ("capi",)}),
        ("cpu", (), "auto", "auto", {"cpu": ("torch",)}),
        ("cpu", (), "cuda:0", "auto", {"cuda:0": ("capi",)}),
        ("cpu", (CARD,), "auto", "auto", {"cuda:0": ("capi",)}),
        ("cpu", (CARD,), "cpu", "auto", {"cpu": ("torch",)}),
        ("rocm", (CARD,), "auto", "auto", {"cuda:0": ("torch", "capi")}),
        ("rocm", (), "auto", "auto", {"cuda:0": ("torch", "capi")}),
        ("rocm", (CARD,), "all", "capi", {"cuda:0": ("capi",)}),
        ("rocm", (CARD,), "cuda", "torch", {"cuda:0": ("torch",)}),
        ("rocm", (CARD,), "cpu", "auto", {"cpu": ("torch",)}),
        ("cuda", (), "auto", "auto", {"cpu": ("torch",)}),
        ("cuda", (), "cuda:1", "auto", {"cuda:1": ("torch",)}),
    ],
)  # fmt: skip
def test_who_asks_which_device(stand_in, kind, gpus, device, driver, expected):
    targets, _ = targets_of(device, driver, "", machine(kind, *gpus))
    assert {target.device: target.drivers for target in targets} == expected
    for target in targets:
        assert (target.place is not None) == ("capi" in target.drivers)


def test_auto_takes_the_card_before_the_gpu_in_the_processor(stand_in, monkeypatch):
    monkeypatch.setenv("LC_STAND_IN_DEVICES", "2")
    integrated, card = with_numbers([replace(CARD, apu=Fact(True, "KFD")), CARD], {})
    both = machine("rocm", card, integrated)
    for driver in ("torch", "capi", "auto"):
        [target], _ = targets_of("auto", driver, "", both)
        assert (target.device, target.gpu) == ("cuda:1", card)
        [first], _ = targets_of("cuda:0", driver, "", both)
        assert first.gpu == integrated
    # What a list hides is no target, and the numbers move up.
    hidden = replace(both, variables={"HIP_VISIBLE_DEVICES": Fact("1", "environment")})
    [target], _ = targets_of("all", "torch", "", hidden)
    assert (target.device, target.gpu) == ("cuda:0", card)


def test_two_devices_of_hip_where_the_kernel_tells_of_one(stand_in, monkeypatch):
    monkeypatch.setenv("LC_STAND_IN_DEVICES", "2")
    targets, known = targets_of("all", "auto", "", machine("rocm", CARD))
    assert [(each.device, each.drivers) for each in targets] == [
        ("cuda:0", ("torch", "capi")), ("cuda:1", ("capi",)),
    ]  # fmt: skip
    assert [each.native_isa for each in targets] == ["gfx1010", None]
    assert [each.effective_isa for each in targets] == ["gfx1030", "gfx1030"]
    assert known.value("capi.devices") == ["gfx1030", "gfx1030"]


def test_facts_of_the_kernel_are_kept_and_hip_fills_in_where_there_are_none(stand_in):
    [target], known = targets_of("auto", "capi", "", machine(None, CARD))
    assert target.gpu == CARD
    assert known.gpus == (CARD,)
    [target], known = targets_of("auto", "capi", "", machine(None))
    assert target.gpu.effective_isa == Fact("gfx1030", "HIP, gcnArchName")
    assert known.gpus == (target.gpu,)
    assert known.value("capi.place") == str(stand_in)
    assert known.value("capi.hip") == "6.4.43484"


def test_auto_without_libraries_is_torch_alone_and_says_why(monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr("rocmprobe.engine.libraries.places", lambda environ: [])
    [target], known = targets_of("auto", "auto", "", machine("rocm", CARD))
    assert target.drivers == ("torch",)
    assert known.value("capi.place") is None
    assert "the driver capi is not used: no libamdhip64" in known.facts["capi.place"].source


def test_a_place_that_was_asked_for_must_be_there(stand_in):
    with pytest.raises(NothingToTest, match="place 'torch'"):
        targets_of("auto", "auto", "torch", machine("rocm", CARD))
    with pytest.raises(BadInput, match="neither a folder nor one of"):
        targets_of("auto", "auto", "no/such/folder", machine("rocm", CARD))
    with pytest.raises(BadInput, match="--driver"):
        targets_of("auto", "hip", "", machine("rocm", CARD))


@pytest.mark.parametrize("driver", ["auto", "torch"])
def test_without_torch_and_libraries_the_way_to_install_one_comes_first(monkeypatch, driver):
    def nowhere(*_):
        raise NothingToTest("no libamdhip64; name a folder with --libraries")

    monkeypatch.setattr("rocmprobe.engine.libraries.find_place", nowhere)
    with pytest.raises(NothingToTest, match=r"^no torch in this Python; `rocmprobe install` prints the comm"):
        targets_of("auto", driver, "", machine(None, CARD))
