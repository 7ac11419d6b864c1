"""What facts alone tell, before anything is asked of the machine."""

import dataclasses

from rows import every_row

from rocmprobe.judge.findings.machine import machine_findings
from rocmprobe.model.results import Fact, Gpu, Machine

CARD = Gpu(
    native_isa=Fact("gfx1010", "KFD"), effective_isa=Fact("gfx1010", "KFD"), vendor=Fact("amd", "PCI"),
    name=Fact("AMD Radeon RX 5600 XT", "table"),
)  # fmt: skip
POSING = Gpu(**{**vars(CARD), "effective_isa": Fact("gfx1030", "HSA_OVERRIDE_GFX_VERSION")})


def found(*gpus, variables=None, **facts):
    named = {name.replace("__", "."): Fact(value, "the test") for name, value in facts.items()}
    set_ = {name: Fact(value, "environment") for name, value in (variables or {}).items()}
    return {finding.id: finding for finding in machine_findings(Machine(gpus, named, set_))}


def test_no_finding_on_a_sound_machine():
    # A sound machine has no findings.
    assert found(CARD, kfd__device="present", torch__kind="rocm", torch__targets=["gfx1010"]) == {}
    assert found(torch__kind="cpu", kfd__device="absent") == {}
    assert found() == {}

    # Variables that work are no finding.
    assert found(variables={"MIOPEN_FIND_MODE": "3", "HSA_OVERRIDE_GFX_VERSION": "10.3.0"}) == {}

    # A value that redaction replaced is judged by what it was.
    label = {"variables__HIP_VISIBLE_DEVICES": "effective, read once per process"}
    assert found(variables={"HIP_VISIBLE_DEVICES": "GPU-<uuid-3884f>"}, **label) == {}

    # What is kept from ROCm on purpose is no finding.
    assert unlisted(kfd__refused=["nodes/2: permission denied"]) is None
    assert unlisted(driver="vfio-pci") is None
    apu = dataclasses.replace(CARD, apu=Fact(True, "table"))
    integrated = unlisted(card=apu)
    assert integrated.severity == "info"
    assert "slot" not in integrated.advice

    # No way to a GPU that nobody misses.
    integrated = dataclasses.replace(CARD, apu=Fact(True, "KFD"))
    laptop = found(integrated, torch__kind="cpu", kfd__device="absent", container__kind="docker")
    assert {finding.severity for finding in laptop.values()} == {"info"}
    laptop = found(integrated, torch__kind="cuda", kfd__device="no permission")
    assert {finding.severity for finding in laptop.values()} == {"info"}
    assert "no-gpu" not in found(torch__kind="rocm", kfd__device="absent", container__wsl="WSL2")

    # Nothing is missed in a WSL that is ready or has no ROCm.
    assert "wsl" not in found(**READY)
    set_ = {"HSA_ENABLE_DXG_DETECTION": "1"}
    assert "wsl" not in found(**{**READY, "torch__hip": "7.2.1"}, variables=set_)
    assert "wsl" not in found(**{**READY, "wsl__dxg": False, "torch__kind": "cuda"})
    assert "wsl" not in found(**{**READY, "wsl__dxg": False}, rocminfo__gpus=["gfx1100"])


def test_an_override_that_does_harm():
    # An override that the silicon cannot follow.
    finding = found(POSING, kfd__device="present")["isa-mismatch-0"]
    assert (finding.severity, finding.cause) == ("warning", "override-isa-mismatch")
    assert any("dot-product" in line for line in finding.evidence)
    assert "No official PyTorch wheel contains code for gfx1010" in finding.advice

    # An override that the runtime refuses is an error.
    finding = found(variables={"HSA_OVERRIDE_GFX_VERSION": "gfx1030"})["variable-HSA_OVERRIDE_GFX_VERSION"]
    assert (finding.severity, finding.cause) == ("error", "override-not-effective")

    # Nor is another wheel looked for where the override hides the code.
    finding = found(POSING, torch__targets=["gfx1010"])["torch-lacks-gfx1030"]
    assert finding.advice.startswith(UNSET)
    # An override strikes every GPU: the one in the processor is hidden, the card keeps it.
    card = dataclasses.replace(
        beside(1, 1, name="RX 7600"), native_isa=Fact("gfx1102"), effective_isa=Fact("gfx1100")
    )
    integrated = dataclasses.replace(
        beside(0, 0, True, "Raphael"), native_isa=Fact("gfx1036"), effective_isa=Fact("gfx1100")
    )
    struck = found(card, integrated)["isa-mismatch-1"]
    assert struck.severity == "warning"
    assert struck.advice == "Run `export HIP_VISIBLE_DEVICES=1` to hide this integrated GPU and keep RX 7600."


@every_row(
    ("node", "cause", "advice"),
    [
        ("no permission", "kfd-permission", "`sudo usermod -a -G render $USER`"),
        ("absent", "kfd-missing", "`sudo modprobe amdgpu`"),
    ],
)
def test_no_way_to_the_gpu(node, cause, advice):
    finding = found(CARD, kfd__device=node, access__groups_needed=["render"])["no-gpu"]
    assert (finding.severity, finding.cause) == ("error", cause)
    assert advice in finding.advice


def test_nodes_and_groups_that_a_container_needs():
    # A container needs the device nodes.
    finding = found(torch__kind="rocm", kfd__device="absent", container__kind="docker")["no-gpu"]
    assert "`--device /dev/kfd --device /dev/dri`" in finding.advice

    # A group without a name in a container.
    facts = {"kfd__device": "no permission", "access__groups_needed": ["gid 109"]}
    assert "--group-add 109" in found(CARD, container__kind="docker", **facts)["no-gpu"].advice
    assert "gid" not in found(CARD, **facts)["no-gpu"].advice


ATOMICS = {
    "kind": "kfd-rejects-atomics", "address": None, "count": 1,
    "line": "kfd: skipped device 1002:731f, PCI rejects atomics",
}  # fmt: skip


def unlisted(*others, **facts):
    facts = {"kfd__device": "present", "kfd__unlisted": ["0000:03:00.0"], "dmesg__events": [ATOMICS], **facts}
    card = dataclasses.replace(
        facts.pop("card", CARD), address=Fact("0000:03:00.0", "PCI"), pci_id=Fact("0x731f", "PCI"),
        driver=Fact(facts.pop("driver", "amdgpu"), "PCI"),
    )  # fmt: skip
    return found(card, *others, **facts).get("gpu-unlisted")


def test_a_card_that_kfd_leaves_out_for_want_of_atomics():
    finding = unlisted()
    assert (finding.severity, finding.cause, finding.layer) == ("warning", "pcie-atomics", "hardware")
    assert ATOMICS["line"] in finding.evidence
    of_another = {**ATOMICS, "line": "kfd: skipped device 1002:15d8, PCI rejects atomics"}
    assert unlisted(dmesg__events=[of_another]).cause == "gpu-unsupported-by-kfd"


def test_logs_and_databases():
    # Trouble in the kernel log.
    events = [
        {"kind": "ring-timeout", "address": None, "count": 2, "line": "ring gfx timeout"},
        {"kind": "kfd-skips-gpu", "address": None, "count": 1, "line": "skipped"},
    ]
    finding = found(dmesg__events=events)["kernel-log"]
    assert finding.evidence == ("2 x ring gfx timeout",)

    # Databases on a network file system.
    place = {"path": "~/.config/miopen", "filesystem": "nfs4", "network": True, "writable": True}
    finding = found(miopen__version="2.17.0", miopen__user_db=place)["miopen-user-db"]
    assert finding.cause == "miopen-db-unusable"
    assert "nfs4" in finding.title


@every_row(
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


def test_a_name_that_the_table_may_lack_is_no_finding():
    """The table has every name of MIOpen up to ROCm 6.4; newer releases have more."""
    unread = {"MIOPEN_OF_NO_SOURCE": "1"}
    assert found(variables=unread, torch__hip="7.14.60850") == {}
    assert found(variables=unread) == {}
    finding = found(variables=unread, torch__hip="6.4.43482")["variable-MIOPEN_OF_NO_SOURCE"]
    assert (finding.severity, finding.advice) == ("warning", "Unset it.")


def test_a_torch_without_code_for_the_chip():
    lists = {"torch__targets": ["gfx900", "gfx1030"], "kfd__device": "present"}
    finding = found(CARD, **lists)["torch-lacks-gfx1010"]
    assert (finding.severity, finding.cause) == ("warning", "arch-not-in-wheel")
    assert found(CARD, CARD, **lists).keys() == {"torch-lacks-gfx1010"}
    # What an override says is what runs.
    assert found(POSING, **lists).keys() == {"isa-mismatch-0"}


UNSET = "Run `unset HSA_OVERRIDE_GFX_VERSION` and try again: the installed"


@every_row(
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
def test_an_override_that_what_is_installed_does_not_need_is_to_be_taken_away(facts, holding):
    finding = found(POSING, variables={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}, **facts)["isa-mismatch-0"]
    told = f"{UNSET} {holding} code for gfx1010 itself."
    assert (finding.advice == told) is (holding is not None)
    assert (UNSET in finding.advice) is (holding is not None)
    sources = [line for line in finding.evidence if ".targets: " in line]
    assert bool(sources) is (holding is not None)


@every_row("targets", [["gfx1010:xnack-"], ["gfx10-1-generic"], ["gfx101x"]])
def test_code_for_an_isa_under_other_names(targets):
    assert found(CARD, torch__targets=targets, rocblas__targets=targets, kfd__device="present") == {}


def test_an_integrated_gpu_beside_a_served_card_is_not_worth_a_warning():
    integrated = dataclasses.replace(
        CARD, native_isa=Fact("gfx1036", "KFD"), effective_isa=Fact("gfx1036", "KFD"), apu=Fact(True, "KFD")
    )
    lists = {"torch__targets": ["gfx1010"], "rocblas__targets": ["gfx1010"], "kfd__device": "present"}
    assert {finding.severity for finding in found(CARD, integrated, **lists).values()} == {"info"}
    alone = found(integrated, **lists)
    assert {finding.severity for finding in alone.values()} == {"warning"}


def test_a_torch_that_failed_when_asked():
    assert found(CARD, kfd__device="present", deep__error="SIGSEGV")["torch-asked"].evidence == ("SIGSEGV",)
    listed = dataclasses.replace(CARD, cus=Fact(36, "KFD"))
    blind = {"kfd__device": "present", "deep__available": False, "deep__hip": "5.2"}
    assert found(listed, **blind)["torch-asked"].severity == "error"
    assert found(listed, variables={"HIP_VISIBLE_DEVICES": "-1"}, **blind) == {}


@every_row(
    "name", ["ROCBLAS_DIR", "MIOPEN_PATH", "TORCH_VERSION", "TORCH_COMPILE_DEBUG", "HIPBLASLT_TUNING_FILE"]
)
def test_variables_of_builds_and_of_others_are_no_finding(name):
    assert found(variables={name: "1"}) == {}


def beside(order, index, apu=False, name="RX 5700 XT"):
    return dataclasses.replace(
        CARD,
        name=Fact(name),
        apu=Fact(apu),
        order=Fact(order),
        index=Fact(index),
        address=Fact("0000:03:00.0"),
    )


@every_row(
    ("card", "integrated", "variables", "severity", "title", "advice"),
    [
        ((1, 1), (0, 0), {}, "warning", "that use the first GPU", "Run `export HIP_VISIBLE_DEVICES=1`:"),
        ((0, 0), (1, 1), {}, "info", "(Raphael) as well as RX", "Run `export HIP_VISIBLE_DEVICES=0`:"),
        (
            (1, None), (0, 0), {"HIP_VISIBLE_DEVICES": "0"},
            "warning", "hide RX 5700 XT", "Run `export HIP_VISIBLE_DEVICES=1`:",
        ),
        (
            (1, None), (0, 0), {"ROCR_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "0"},
            "warning", "hide RX 5700 XT", "Run `unset HIP_VISIBLE_DEVICES; export ROCR_VISIBLE_DEVICES=1`:",
        ),
        ((1, 0), (0, None), {"HIP_VISIBLE_DEVICES": "1"}, None, None, None),
    ],
)  # fmt: skip
def test_a_gpu_in_the_processor_beside_a_card(card, integrated, variables, severity, title, advice):
    finding = found(beside(*card), beside(*integrated, True, "Raphael"), variables=variables).get(
        "integrated-gpu"
    )
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.cause == "integrated-gpu-first"
        assert title in finding.title
        assert advice in finding.advice


def test_the_uuid_names_the_card_where_the_order_is_not_known():
    card = dataclasses.replace(beside(None, None), uuid=Fact("GPU-4904ba80f4e6b186"))
    finding = found(card, beside(None, None, True, "Raphael"))["integrated-gpu"]
    assert "`export ROCR_VISIBLE_DEVICES=GPU-4904ba80f4e6b186`" in finding.advice
    redacted = dataclasses.replace(card, uuid=Fact("GPU-<uuid-3884f>"))
    finding = found(redacted, beside(None, None, True, "Raphael"))["integrated-gpu"]
    assert "`rocmprobe detect --no-redact` shows the card's UUID" in finding.advice
    assert "`rocminfo`" in found(beside(None, None), beside(None, None, True))["integrated-gpu"].advice


READY = {
    "torch__kind": "rocm", "container__wsl": "WSL2", "torch__hip": "7.13.26183", "wsl__dxg": True,
    "wsl__librocdxg": ["/opt/rocm/lib/librocdxg.so"],
}  # fmt: skip


@every_row(
    ("changed", "title", "advice"),
    [
        ({"wsl__dxg": False}, "there is no /dev/dxg", "`wsl --update`"),
        ({"wsl__librocdxg": None}, "librocdxg is not installed", "https://github.com/ROCm/librocdxg"),
        (
            {"torch__hip": "5.2.21151"},
            "ROCm 5.2.21151 does not load librocdxg",
            "torch for ROCm 7.1 or newer",
        ),
        ({"torch__hip": "7.2.1"}, "DETECTION is not set", "`export HSA_ENABLE_DXG_DETECTION=1`"),
        ({"container__wsl": "WSL1"}, "WSL1 has no GPU", "`wsl --set-version NAME 2`"),
        (
            {"rocminfo__message": "No WDDM adapters found."},
            "finds no GPU in this WSL",
            "RDNA2: Not in librocdxg's list",
        ),
    ],
)
def test_what_is_missing_in_wsl(changed, title, advice):
    finding = found(**{**READY, **changed})["wsl"]
    assert (finding.severity, finding.cause) == ("error", "unsupported-platform")
    assert title in finding.title
    assert advice in finding.advice
    assert any(
        line.startswith("RDNA1: One owner reports that the WSL driver stops") for line in finding.evidence
    )


def test_a_chip_that_the_bridge_of_wsl_does_not_take():
    finding = found(CARD, **{**READY, "wsl__librocdxg": None})["wsl"]
    assert finding.advice.startswith("One owner reports that the WSL driver stops an RX 5700 XT")
    assert finding.advice.endswith("Linux without WSL.")


NEW = dataclasses.replace(CARD, native_isa=Fact("gfx1201", "PCI"), effective_isa=Fact("gfx1201", "PCI"))


def test_software_that_is_older_than_the_chip():
    # A kernel that is older than the chip.
    facts = {"kernel__release": "6.8.0-40-generic", "os__name": "Ubuntu 24.04"}
    finding = found(NEW, **facts)["kernel-older-than-gfx1201"]
    assert (finding.severity, finding.cause) == ("warning", "kernel-driver-too-old")
    assert finding.title.endswith("Linux 6.8 does not support gfx1201; 6.11 is the first that does")
    assert finding.evidence[0] == "kernel.release 6.8.0-40-generic, from the test"
    integrated = dataclasses.replace(NEW, apu=Fact(True))
    assert found(integrated, **facts)["kernel-older-than-gfx1201"].severity == "info"

    # A ROCm that is older than the chip.
    facts = {"torch__version": "2.2.2+rocm5.7", "torch__kind": "rocm", "torch__hip": "5.7.31921"}
    finding = found(NEW, NEW, **facts)["rocm-older-than-gfx1201"]
    assert (finding.severity, finding.cause) == ("warning", "rocm-too-old-for-gpu")
    assert finding.title.endswith("ROCm 5.7 does not support gfx1201; 6.2 is the first that does")
    assert "torch.version 2.2.2+rocm5.7, from the test" in finding.evidence
    assert "rocm-older-than-gfx1201" not in found(NEW, **facts, torch__targets=["gfx1201"])
    assert "rocm-older-than-gfx1201" not in found(NEW, **{**facts, "torch__version": "2.7.1+rocm6.3"})


@every_row(
    "changed",
    [
        {"kernel__release": "6.11.0-1"},
        {"kernel__release": None},
        {"amdgpu__origin": "dkms"},
        {"container__wsl": "WSL2"},
        {"order": 0},
    ],
)
def test_a_kernel_that_knows_the_chip_all_the_same(changed):
    facts = {"kernel__release": "6.8.0-40-generic", "os__name": "Ubuntu 24.04", **changed}
    card = dataclasses.replace(NEW, order=Fact(facts.pop("order", None)))
    assert "kernel-older-than-gfx1201" not in found(card, **facts)


@every_row(
    ("torch", "severity"), [("2.2.0+rocm5.7", "info"), ("2.5.1+rocm6.2", "warning"), ("2.5.1", "info")]
)
def test_an_override_that_releases_break_although_the_silicon_follows(torch, severity):
    card = dataclasses.replace(CARD, native_isa=Fact("gfx1102", "KFD"), effective_isa=Fact("gfx1100", "env"))
    finding = found(card, torch__version=torch)["isa-mismatch-0"]
    assert finding.severity == severity
    told = any("ROCm 6.0 and newer break gfx1102" in line for line in finding.evidence)
    assert told == (severity == "warning")


def test_what_sends_operators_to_other_libraries():
    rerouted = found(CARD, torch__reroutes={"hipdnn_torch": "0.1.0"})["reroutes-hipdnn_torch"]
    assert rerouted.severity == "info"
    assert "hipdnn_torch.install()" in rerouted.advice

    switched = found(CARD, deep__switches={"hipdnn.enabled": True})
    assert "torch.backends.hipdnn.enabled = False" in switched["hipdnn-enabled"].advice

    preferred = {"cuda.preferred_blas_library": "cublaslt"}
    lacking = found(CARD, deep__switches=preferred, hipblaslt__targets=["gfx1100", "gfx942"])
    assert 'preferred_blas_library("cublas")' in lacking["hipblaslt-preferred-gfx1010"].advice
    assert not found(CARD, deep__switches=preferred, hipblaslt__targets=["gfx1010"])
    harmless = {"hipdnn.enabled": False, "cuda.preferred_blas_library": "cublas"}
    assert not found(CARD, deep__switches=harmless, hipblaslt__targets=["gfx1100"])
