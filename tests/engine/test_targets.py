"""The devices of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocmprobe.engine.targets import find_targets
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


@pytest.mark.parametrize(
    ("kind", "gpus", "wanted", "expected"),
    [
        ("cpu", (), "auto", ["cpu"]),
        ("cpu", (CARD,), "auto", ["cpu"]),
        ("rocm", (CARD,), "auto", ["cuda:0"]),
        ("rocm", (), "auto", ["cpu"]),
        ("rocm", (CARD, CARD), "all", ["cuda:0", "cuda:1"]),
        ("rocm", (CARD,), "cuda", ["cuda:0"]),
        ("rocm", (CARD,), "cpu", ["cpu"]),
        ("cuda", (), "auto", ["cpu"]),
    ],
)  # fmt: skip
def test_the_devices_that_are_asked_for(kind, gpus, wanted, expected):
    assert [target.device for target in find_targets(wanted, machine(kind, *gpus))] == expected


def test_a_cuda_build_needs_a_driver_for_a_gpu(monkeypatch):
    monkeypatch.setattr("rocmprobe.engine.targets._nvidia_driver", lambda: True)
    assert [target.device for target in find_targets("cuda:1", machine("cuda"))] == ["cuda:1"]
    monkeypatch.setattr("rocmprobe.engine.targets._nvidia_driver", lambda: False)
    with pytest.raises(NothingToTest, match=r"cuda:1: torch 2.4.0 \(cuda build\) and this machine have 0 "):
        find_targets("cuda:1", machine("cuda"))


def test_auto_takes_the_card_before_the_gpu_in_the_processor():
    integrated, card = with_numbers([replace(CARD, apu=Fact(True, "KFD")), CARD], {})
    both = machine("rocm", card, integrated)
    [target] = find_targets("auto", both)
    assert (target.device, target.gpu) == ("cuda:1", card)
    [first] = find_targets("cuda:0", both)
    assert first.gpu == integrated
    # What a list hides is no target, and the numbers move up.
    hidden = replace(both, variables={"HIP_VISIBLE_DEVICES": Fact("1", "environment")})
    [target] = find_targets("all", hidden)
    assert (target.device, target.gpu) == ("cuda:0", card)


@pytest.mark.parametrize("name", ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_the_error_names_the_variable_that_hides_a_gpu(name):
    hidden = replace(
        machine("rocm", *with_numbers([CARD], {name: "1"})), variables={name: Fact("1", "environment")}
    )
    with pytest.raises(NothingToTest) as error:
        find_targets("cuda:0", hidden)
    assert str(error.value) == (
        f"--device cuda:0: it is hidden by {name}=1 (0 of 1 GPU(s) can be used); unset the variable, or name "
        "another device"
    )
    # A card that does not exist is not hidden.
    with pytest.raises(NothingToTest, match="see `rocmprobe detect`"):
        find_targets("cuda:1", hidden)


def test_without_torch_the_libraries_alone_are_asked(monkeypatch):
    found = {"libamdhip64": "/opt/rocm/lib/libamdhip64.so"}
    monkeypatch.setattr("rocmprobe.engine.targets.find_libraries", lambda environ: found)
    [target] = find_targets("auto", machine(None, CARD))
    assert (target.device, target.backend, target.torch) == ("cuda:0", "miopen", False)
    assert find_targets("auto", machine("rocm", CARD))[0].torch
    with pytest.raises(NothingToTest, match=r"--device cuda:1: this machine has 1 matching GPU"):
        find_targets("cuda:1", machine(None, CARD))
    for wanted, gpus in (("cpu", (CARD,)), ("auto", ())):
        with pytest.raises(NothingToTest, match="no torch in this Python"):
            find_targets(wanted, machine(None, *gpus))


def test_what_cannot_be_asked_says_why(monkeypatch):
    monkeypatch.setattr("rocmprobe.engine.targets.find_libraries", lambda environ: {})
    with pytest.raises(NothingToTest, match=r"^no torch in this Python; `rocmprobe install` prints the comm"):
        find_targets("auto", machine(None, CARD))
    with pytest.raises(NothingToTest, match=r"--device cuda:1: torch 2.4.0 \(rocm build\)"):
        find_targets("cuda:1", machine("rocm", CARD))
    with pytest.raises(BadInput, match="unknown; use auto, cpu, cuda:N or all"):
        find_targets("gpu", machine("rocm", CARD))
