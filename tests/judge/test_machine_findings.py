"""Findings that follow from facts alone, before a test runs."""

from __future__ import annotations

import pytest

from rocmprobe.judge.findings.disagreements import disagreements
from rocmprobe.judge.findings.machine import machine_findings
from rocmprobe.model.results import Fact, Gpu, Machine


def gpu(**facts):
    """An RX 5600 XT, but for ``facts``."""
    known = {
        "native_isa": "gfx1010", "effective_isa": "gfx1010", "vendor": "amd", "name": "AMD Radeon RX 5600 XT",
    }  # fmt: skip
    return Gpu(**{name: Fact(value, "KFD") for name, value in {**known, **facts}.items()})


def isa(native, effective=None, **facts):
    return gpu(native_isa=native, effective_isa=effective or native, **facts)


CARD, POSING, NEW = gpu(), isa("gfx1010", "gfx1030"), isa("gfx1201")
INTEGRATED = isa("gfx1036", apu=True)


def found(*gpus, variables=None, **facts):
    named = {name.replace("__", "."): Fact(value, "the test") for name, value in facts.items()}
    set_ = {name: Fact(value, "environment") for name, value in (variables or {}).items()}
    return {finding.id: finding for finding in machine_findings(Machine(gpus, named, set_))}


def beside(order, index, apu=False, name="RX 5700 XT", **facts):
    return gpu(name=name, apu=apu, order=order, index=index, address="0000:03:00.0", **facts)


def raphael(order, index):
    return beside(order, index, True, "Raphael")


ATOMICS = {
    "kind": "kfd-rejects-atomics", "address": None, "count": 1,
    "line": "kfd: skipped device 1002:731f, PCI rejects atomics",
}  # fmt: skip
SLOT = gpu(address="0000:03:00.0", pci_id="0x731f", driver="amdgpu")
UNLISTED = {"kfd__device": "present", "kfd__unlisted": ["0000:03:00.0"], "dmesg__events": [ATOMICS]}
OTHERS_ATOMICS = {**ATOMICS, "line": "kfd: skipped device 1002:15d8, PCI rejects atomics"}
LISTS = {"torch__targets": ["gfx1010"], "rocblas__targets": ["gfx1010"], "kfd__device": "present"}
WITHOUT_CODE = {"torch__targets": ["gfx900", "gfx1030"], "kfd__device": "present"}
BLIND = {"kfd__device": "present", "deep__available": False, "deep__hip": "5.2"}
NO_PERMISSION = {"kfd__device": "no permission", "access__groups_needed": ["gid 109"]}
OLD_KERNEL = {"kernel__release": "6.8.0-40-generic", "os__name": "Ubuntu 24.04"}
OLD_ROCM = {"torch__version": "2.2.2+rocm5.7", "torch__kind": "rocm", "torch__hip": "5.7.31921"}
PREFERRED = {"deep__switches": {"cuda.preferred_blas_library": "cublaslt"}}
NFS = {"path": "~/.config/miopen", "filesystem": "nfs4", "network": True, "writable": True}
EVENTS = [
    {"kind": "ring-timeout", "address": None, "count": 2, "line": "ring gfx timeout"},
    {"kind": "kfd-skips-gpu", "address": None, "count": 1, "line": "skipped"},
]
READY = {
    "torch__kind": "rocm", "container__wsl": "WSL2", "torch__hip": "7.13.26183", "wsl__dxg": True,
    "wsl__librocdxg": ["/opt/rocm/lib/librocdxg.so"],
}  # fmt: skip
UNREAD = {"MIOPEN_OF_NO_SOURCE": "1"}


def rule(words, name, *gpus, severity="warning", cause="", title="", advice="", evidence="", **facts):
    """A row: the rule, the id of the finding, facts, and what the finding says."""
    return pytest.param(name, gpus, facts, severity, cause, title, advice, evidence, id=words)


@pytest.mark.parametrize(
    ("name", "gpus", "facts", "severity", "cause", "title", "advice", "evidence"),
    [
        # Overrides.
        rule("an override that the silicon cannot follow", "isa-mismatch-0", POSING, kfd__device="present",
             cause="override-isa-mismatch", evidence="dot-product",
             advice="No official PyTorch wheel contains code for gfx1010"),
        rule("an override that the runtime refuses", "variable-HSA_OVERRIDE_GFX_VERSION", severity="error",
             variables={"HSA_OVERRIDE_GFX_VERSION": "gfx1030"}, cause="override-not-effective"),
        rule("an override that hides the code of the wheel", "torch-lacks-gfx1030", POSING,
             torch__targets=["gfx1010"], advice="Run `unset HSA_OVERRIDE_GFX_VERSION` and try again: "),
        rule("an override of all GPUs", "isa-mismatch-1",
             beside(1, 1, name="RX 7600", native_isa="gfx1102", effective_isa="gfx1100"),
             beside(0, 0, True, native_isa="gfx1036", effective_isa="gfx1100"),
             advice="Run `export HIP_VISIBLE_DEVICES=1` to hide this integrated GPU and keep RX 7600."),
        rule("an override that old releases support", "isa-mismatch-0", isa("gfx1102", "gfx1100"),
             torch__version="2.2.0+rocm5.7", severity="info"),
        rule("an override that new releases break", "isa-mismatch-0", isa("gfx1102", "gfx1100"),
             torch__version="2.5.1+rocm6.2", evidence="ROCm 6.0 and newer break gfx1102"),
        # The way to the GPU.
        rule("a user without the group", "no-gpu", CARD, kfd__device="no permission", severity="error",
             access__groups_needed=["render"], cause="kfd-permission",
             advice="`sudo usermod -a -G render $USER`"),
        rule("no driver", "no-gpu", CARD, kfd__device="absent", severity="error", cause="kfd-missing",
             advice="`sudo modprobe amdgpu`"),
        rule("a container without the device nodes", "no-gpu", torch__kind="rocm", kfd__device="absent",
             container__kind="docker", severity="error", advice="`--device /dev/kfd --device /dev/dri`"),
        rule("a group without a name in a container", "no-gpu", CARD, container__kind="docker",
             severity="error", advice="--group-add 109", **NO_PERMISSION),
        rule("an integrated GPU that KFD leaves out", "gpu-unlisted",
             gpu(address="0000:03:00.0", pci_id="0x731f", driver="amdgpu", apu=True), severity="info",
             **UNLISTED),
        rule("a slot without atomics", "gpu-unlisted", SLOT, cause="pcie-atomics", evidence=ATOMICS["line"],
             advice="Put the card into a slot connected directly to the processor", **UNLISTED),
        rule("atomics that another card lacks", "gpu-unlisted", SLOT, cause="gpu-unsupported-by-kfd",
             **{**UNLISTED, "dmesg__events": [OTHERS_ATOMICS]}),
        rule("a first GPU in the processor", "integrated-gpu", beside(1, 1), raphael(0, 0),
             cause="integrated-gpu-first", title="that use the first GPU", evidence="Raphael, integrated",
             advice="Run `export HIP_VISIBLE_DEVICES=1`:"),
        rule("a second GPU in the processor", "integrated-gpu", beside(0, 0), raphael(1, 1), severity="info",
             title="(Raphael) as well as RX", advice="Run `export HIP_VISIBLE_DEVICES=0`:"),
        rule("a variable that hides the card", "integrated-gpu", beside(1, None), raphael(0, 0),
             variables={"HIP_VISIBLE_DEVICES": "0"}, title="hide RX 5700 XT",
             advice="Run `export HIP_VISIBLE_DEVICES=1`:"),
        rule("two variables that hide the card", "integrated-gpu", beside(1, None), raphael(0, 0),
             variables={"ROCR_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "0"}, title="hide RX 5700 XT",
             advice="Run `unset HIP_VISIBLE_DEVICES; export ROCR_VISIBLE_DEVICES=1`:"),
        rule("an unknown order, and a UUID", "integrated-gpu",
             beside(None, None, uuid="GPU-4904ba80f4e6b186"), raphael(None, None), severity="info",
             advice="`export ROCR_VISIBLE_DEVICES=GPU-4904ba80f4e6b186`"),
        rule("an unknown order, and a redacted UUID", "integrated-gpu",
             beside(None, None, uuid="GPU-<uuid-3884f>"), raphael(None, None), severity="info",
             advice="`rocmprobe detect --no-redact` shows the card's UUID"),
        rule("an unknown order, and no UUID", "integrated-gpu", beside(None, None),
             raphael(None, None), severity="info", advice="`rocminfo`"),
        # Software.
        rule("a torch without code for the chip", "torch-lacks-gfx1010", CARD, cause="arch-not-in-wheel",
             **WITHOUT_CODE),
        rule("an integrated GPU without code, alone", "torch-lacks-gfx1036", INTEGRATED, **LISTS),
        rule("an integrated GPU without code beside a card", "torch-lacks-gfx1036", CARD, INTEGRATED,
             severity="info", **LISTS),
        rule("a torch that fails in detect", "torch-asked", CARD, kfd__device="present", severity="error",
             deep__error="SIGSEGV", evidence="SIGSEGV"),
        rule("a torch that sees no GPU", "torch-asked", gpu(cus=36), severity="error", **BLIND),
        rule("a kernel older than the chip", "kernel-older-than-gfx1201", NEW, cause="kernel-driver-too-old",
             title="Linux 6.8 does not support gfx1201; 6.11 is the first that does",
             evidence="kernel.release 6.8.0-40-generic, from the test", **OLD_KERNEL),
        rule("a kernel older than an integrated GPU", "kernel-older-than-gfx1201", isa("gfx1201", apu=True),
             severity="info", **OLD_KERNEL),
        rule("a ROCm older than the chip", "rocm-older-than-gfx1201", NEW, NEW, cause="rocm-too-old-for-gpu",
             title="ROCm 5.7 does not support gfx1201; 6.2 is the first that does",
             evidence="torch.version 2.2.2+rocm5.7, from the test", **OLD_ROCM),
        rule("a package that reroutes operators", "reroutes-hipdnn_torch", CARD, severity="info",
             torch__reroutes={"hipdnn_torch": "0.1.0"}, advice="hipdnn_torch.install()"),
        rule("a switch that reroutes operators", "hipdnn-enabled", CARD,
             deep__switches={"hipdnn.enabled": True}, advice="torch.backends.hipdnn.enabled = False"),
        rule("a preferred library without the chip", "hipblaslt-preferred-gfx1010", CARD, **PREFERRED,
             hipblaslt__targets=["gfx1100", "gfx942"], advice='preferred_blas_library("cublas")'),
        # Logs, databases and variables.
        rule("trouble in the kernel log", "kernel-log", dmesg__events=EVENTS,
             evidence="2 x ring gfx timeout"),
        rule("a database on a network", "miopen-user-db", miopen__version="2.17.0", miopen__user_db=NFS,
             cause="miopen-db-unusable", title="nfs4"),
        rule("a variable with a wrong name", "variable-MIOPEN_FIND_MOD", variables={"MIOPEN_FIND_MOD": "1"},
             advice="MIOPEN_FIND_MODE"),
        rule("a variable with a wrong value", "variable-MIOPEN_LOG_LEVEL",
             variables={"MIOPEN_LOG_LEVEL": "loud"}, advice="Unset"),
        rule("an unknown variable of a known release", "variable-MIOPEN_OF_NO_SOURCE", variables=UNREAD,
             torch__hip="6.4.43482", advice="Unset it."),
        # WSL.
        rule("a WSL without its device", "wsl", **{**READY, "wsl__dxg": False}, severity="error",
             cause="unsupported-platform", title="there is no /dev/dxg", advice="`wsl --update`",
             evidence="RDNA1: One owner reports that the WSL driver stops"),
        rule("a WSL without its library", "wsl", **{**READY, "wsl__librocdxg": None}, severity="error",
             title="librocdxg is not installed", advice="https://github.com/ROCm/librocdxg"),
        rule("a ROCm that does not load it", "wsl", **{**READY, "torch__hip": "5.2.21151"}, severity="error",
             title="ROCm 5.2.21151 does not load librocdxg", advice="torch for ROCm 7.1 or newer"),
        rule("a ROCm that loads it on request", "wsl", **{**READY, "torch__hip": "7.2.1"}, severity="error",
             title="DETECTION is not set", advice="`export HSA_ENABLE_DXG_DETECTION=1`"),
        rule("WSL1", "wsl", **{**READY, "container__wsl": "WSL1"}, severity="error", title="WSL1 has no GPU",
             advice="`wsl --set-version NAME 2`"),
        rule("a WSL that rocminfo finds no GPU in", "wsl", severity="error",
             **{**READY, "rocminfo__message": "No WDDM adapters found."}, title="finds no GPU in this WSL",
             advice="RDNA2: Not in librocdxg's list"),
        rule("a chip that WSL does not support", "wsl", CARD, **{**READY, "wsl__librocdxg": None},
             severity="error", advice="One owner reports that the WSL driver stops an RX 5700 XT"),
    ],
)  # fmt: skip
def test_the_finding(name, gpus, facts, severity, cause, title, advice, evidence):
    finding = found(*gpus, **facts)[name]
    assert (finding.severity, finding.cause) == (severity, cause or finding.cause)
    assert title in finding.title
    assert advice in finding.advice
    assert evidence in "\n".join(finding.evidence)


def nothing(words, *gpus, of="", **facts):
    """A row: the rule, the beginning of the id that no finding has, and facts."""
    return pytest.param(of, gpus, facts, id=words)


@pytest.mark.parametrize(
    ("of", "gpus", "facts"),
    [
        nothing("a sound machine", CARD, kfd__device="present", torch__kind="rocm",
                torch__targets=["gfx1010"]),
        nothing("a laptop", torch__kind="cpu", kfd__device="absent"),
        nothing("no facts"),
        nothing("variables that work",
                variables={"MIOPEN_FIND_MODE": "3", "HSA_OVERRIDE_GFX_VERSION": "10.3.0"}),
        nothing("a redacted value is judged by its label", variables={"HIP_VISIBLE_DEVICES": "GPU-<uuid-3>"},
                variables__HIP_VISIBLE_DEVICES="effective, read once per process"),
        *(nothing("variables of builds and others", variables={name: "1"}) for name in (
            "ROCBLAS_DIR", "MIOPEN_PATH", "TORCH_VERSION", "TORCH_COMPILE_DEBUG", "HIPBLASLT_TUNING_FILE")),
        # The table has every name of MIOpen up to ROCm 6.4.
        nothing("an unknown variable of a newer release", variables=UNREAD, torch__hip="7.14.60850"),
        nothing("an unknown variable of an unknown release", variables=UNREAD),
        *(nothing("code under another name", CARD, kfd__device="present", torch__targets=[name],
                  rocblas__targets=[name]) for name in ("gfx1010:xnack-", "gfx10-1-generic", "gfx101x")),
        nothing("the override decides what code is needed", POSING, of="torch-lacks", **WITHOUT_CODE),
        nothing("a GPU that a variable hides from torch", gpu(cus=36), **BLIND,
                variables={"HIP_VISIBLE_DEVICES": "-1"}),
        nothing("no amdgpu in WSL", of="no-gpu", torch__kind="rocm", kfd__device="absent",
                container__wsl="WSL2"),
        nothing("a container refuses the card", SLOT, of="gpu-unlisted",
                **{**UNLISTED, "kfd__refused": ["nodes/2: permission denied"]}),
        nothing("a card for a virtual machine", gpu(address="0000:03:00.0", driver="vfio-pci"),
                of="gpu-unlisted", **UNLISTED),
        nothing("a chosen card", beside(1, 0), raphael(0, None), of="integrated-gpu",
                variables={"HIP_VISIBLE_DEVICES": "1"}),
        nothing("a WSL that is ready", of="wsl", **READY),
        nothing("a WSL with its variable", of="wsl", variables={"HSA_ENABLE_DXG_DETECTION": "1"},
                **{**READY, "torch__hip": "7.2.1"}),
        nothing("a WSL with CUDA", of="wsl", **{**READY, "wsl__dxg": False, "torch__kind": "cuda"}),
        nothing("a WSL whose GPU rocminfo lists", of="wsl", rocminfo__gpus=["gfx1100"],
                **{**READY, "wsl__dxg": False}),
        *(nothing("a kernel that knows the chip all the same", NEW, of="kernel", **{**OLD_KERNEL, **changed})
          for changed in ({"kernel__release": "6.11.0-1"}, {"kernel__release": None},
                          {"amdgpu__origin": "dkms"}, {"container__wsl": "WSL2"})),
        nothing("a kernel that lists the GPU", isa("gfx1201", order=0), of="kernel", **OLD_KERNEL),
        nothing("a wheel with code", NEW, of="rocm", **OLD_ROCM, torch__targets=["gfx1201"]),
        nothing("a newer ROCm", NEW, of="rocm", **{**OLD_ROCM, "torch__version": "2.7.1+rocm6.3"}),
        nothing("a preferred library with the chip", CARD, **PREFERRED, hipblaslt__targets=["gfx1010"]),
        nothing("switches that reroute nothing", CARD, hipblaslt__targets=["gfx1100"],
                deep__switches={"hipdnn.enabled": False, "cuda.preferred_blas_library": "cublas"}),
    ],
)  # fmt: skip
def test_no_finding(of, gpus, facts):
    assert [name for name in found(*gpus, **facts) if name.startswith(of)] == []


@pytest.mark.parametrize(
    "facts",
    [
        {"torch__kind": "cpu", "kfd__device": "absent", "container__kind": "docker"},
        {"torch__kind": "cuda", "kfd__device": "no permission"},
    ],
)
def test_no_way_to_an_integrated_gpu_is_information(facts):
    assert {finding.severity for finding in found(INTEGRATED, **facts).values()} == {"info"}


def test_two_cards_of_a_kind_are_one_finding():
    assert found(CARD, CARD, **WITHOUT_CODE).keys() == {"torch-lacks-gfx1010"}


def test_a_group_without_a_name_is_no_group_for_usermod():
    assert "gid" not in found(CARD, **NO_PERMISSION)["no-gpu"].advice


@pytest.mark.parametrize(
    ("facts", "holding"),
    [
        ({"torch__targets": ["gfx1010"]}, "PyTorch holds"),
        ({"torch__targets": ["gfx1010:xnack-"], "rocblas__targets": ["gfx1010"]}, "PyTorch and rocBLAS hold"),
        ({"torch__targets": None, "rocblas__targets": ["gfx900", "gfx1010"]}, "rocBLAS holds"),
        ({"torch__targets": ["gfx1010"], "rocblas__targets": ["gfx1030"]}, None),
        ({"torch__targets": ["gfx1030"], "rocblas__targets": ["gfx1010", "gfx1030"]}, None),
        ({}, None),
    ],
)
def test_an_override_that_the_installed_libraries_do_not_need(facts, holding):
    finding = found(POSING, variables={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}, **facts)["isa-mismatch-0"]
    unset = "Run `unset HSA_OVERRIDE_GFX_VERSION` and try again: the installed"
    assert (finding.advice == f"{unset} {holding} code for gfx1010 itself.") is (holding is not None)
    assert (unset in finding.advice) is (holding is not None)
    sources = [line for line in finding.evidence if ".targets: " in line]
    assert bool(sources) is (holding is not None)


SEEN = {
    "deep__hip": "6.1", "deep__device_count": 1,
    "deep__devices": [{"gcnArchName": "gfx1010:xnack-", "pci_bus_id": 11, "pci_device_id": 0}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("isas", "facts", "about"),
    [
        pytest.param((None, None), {}, [], id="nothing is known"),
        pytest.param(("gfx1010", "gfx1010"), SEEN, [], id="torch sees the same"),
        pytest.param(("gfx1010", "gfx1030"), SEEN, ["the effective ISA"], id="torch sees another ISA"),
        pytest.param(("gfx1010", "gfx1030"), {**SEEN, "deep__device_count": 0, "deep__devices": []}, [],
                     id="torch sees no GPU"),
        # torch before 2.4.
        pytest.param(("gfx1010", "gfx1030"), {**SEEN, "deep__devices": [{"name": "AMD"}]}, [],
                     id="torch does not name the ISA"),
        pytest.param(("gfx1030", "gfx1030"),
                     {"torch__targets": ["gfx900", "gfx1030"], "deep__arch_list": ["gfx900"]},
                     ["the targets that torch is built for"], id="torch lists other targets than its files"),
    ],
)  # fmt: skip
def test_sources_that_disagree(isas, facts, about):
    card = gpu(address="0000:0b:00.0", native_isa=isas[0], effective_isa=isas[1])
    machine = Machine((card,), {name.replace("__", "."): Fact(value, name) for name, value in facts.items()})
    assert [what for what, _, _ in disagreements(machine)] == about
