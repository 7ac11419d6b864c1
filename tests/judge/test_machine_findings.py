"""What facts alone tell, before anything is asked of the machine."""

import pytest

from rocmprobe.judge import machine_findings
from rocmprobe.model import Fact, Gpu, Machine

CARD = Gpu(
    native_isa=Fact("gfx1010", "KFD"), effective_isa=Fact("gfx1010", "KFD"), vendor=Fact("amd", "PCI"),
    name=Fact("AMD Radeon RX 5600 XT", "table"),
)  # fmt: skip
POSING = Gpu(**{**vars(CARD), "effective_isa": Fact("gfx1030", "HSA_OVERRIDE_GFX_VERSION")})


def found(*gpus, variables=None, **facts):
    named = {name.replace("__", "."): Fact(value, "the test") for name, value in facts.items()}
    set_ = {name: Fact(value, "environment") for name, value in (variables or {}).items()}
    return {finding.id: finding for finding in machine_findings(Machine(gpus, named, set_))}


def test_a_sound_machine_has_no_findings():
    assert found(CARD, kfd__device="present", torch__kind="rocm", torch__targets=["gfx1010"]) == {}
    assert found(torch__kind="cpu", kfd__device="absent") == {}
    assert found() == {}


def test_an_override_that_the_silicon_cannot_follow():
    finding = found(POSING, kfd__device="present")["isa-mismatch-0"]
    assert (finding.severity, finding.cause) == ("warning", "override-isa-mismatch")
    assert any("dot-product" in line for line in finding.evidence)
    assert "No official PyTorch wheel holds code for gfx1010" in finding.advice


@pytest.mark.parametrize(
    ("node", "cause", "advice"),
    [
        ("no permission", "kfd-permission", "usermod -a -G render"),
        ("absent", "kfd-missing", "amdgpu driver"),
    ],
)
def test_no_way_to_the_gpu(node, cause, advice):
    finding = found(
        CARD, kfd__device=node, access__groups_needed=["render"], rocminfo__meaning="the driver is not loaded"
    )["no-gpu"]
    assert (finding.severity, finding.cause) == ("error", cause)
    assert advice in finding.advice
    assert "rocminfo: the driver is not loaded" in finding.evidence


def test_a_container_needs_the_device_nodes():
    finding = found(torch__kind="rocm", kfd__device="absent", container__kind="docker")["no-gpu"]
    assert "--device /dev/kfd" in finding.advice


def test_a_card_that_kfd_leaves_out_for_want_of_atomics():
    line = "kfd: skipped device 1002:731f, PCI rejects atomics"
    event = {"kind": "kfd-rejects-atomics", "address": None, "count": 1, "line": line}
    finding = found(CARD, kfd__device="present", kfd__unlisted=["0000:03:00.0"], dmesg__events=[event])[
        "gpu-unlisted"
    ]
    assert (finding.cause, finding.layer) == ("pcie-atomics", "hardware")
    assert line in finding.evidence


def test_trouble_in_the_kernel_log():
    events = [
        {"kind": "ring-timeout", "address": None, "count": 2, "line": "ring gfx timeout"},
        {"kind": "kfd-skips-gpu", "address": None, "count": 1, "line": "skipped"},
    ]
    finding = found(dmesg__events=events)["kernel-log"]
    assert finding.evidence == ("2 x ring gfx timeout",)


@pytest.mark.parametrize(
    ("name", "value", "severity", "told"),
    [
        ("MIOPEN_FIND_MOD", "1", "warning", "MIOPEN_FIND_MODE"),
        ("MIOPEN_LOG_LEVEL", "loud", "warning", "Unset"),
    ],
)
def test_variables_that_do_not_do_what_they_were_set_for(name, value, severity, told):
    finding = found(variables={name: value})[f"variable-{name}"]
    assert finding.severity == severity
    assert told in finding.advice


def test_variables_that_work_are_no_finding():
    assert found(variables={"MIOPEN_FIND_MODE": "3", "HSA_OVERRIDE_GFX_VERSION": "10.3.0"}) == {}


def test_a_torch_without_code_for_the_chip():
    finding = found(CARD, torch__targets=["gfx900", "gfx1030"], kfd__device="present")["disagreement-0"]
    assert (finding.severity, finding.cause) == ("warning", "arch-not-in-wheel")
    overridden = found(POSING, torch__targets=["gfx900", "gfx1030"], kfd__device="present")
    assert overridden["disagreement-0"].severity == "info"


def test_databases_on_a_network_file_system():
    place = {"path": "~/.config/miopen", "filesystem": "nfs4", "network": True, "writable": True}
    finding = found(miopen__version="2.17.0", miopen__user_db=place)["miopen-user-db"]
    assert finding.cause == "miopen-db-unusable"
    assert "nfs4" in finding.title
