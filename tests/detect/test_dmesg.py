"""The kernel's log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.detect.host import dmesg
from rocmprobe.detect.tree import Tree

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
recorded = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not on this machine")
TIMEOUT = "amdgpu 0000:28:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=57638, emitted seq=57641"


def kinds(text):
    return {(event["kind"], event["count"]) for event in dmesg.parse(text).events}


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[  312.522692] ",
        "<3>[  312.522692] ",
        "[Fri Nov 20 16:37:54 2026] ",
        "Nov 20 16:37:54 tower kernel: ",
        "2026-11-20T16:37:54.123456+01:00 tower kernel: [  312.522692] ",
    ],
)
def test_times_and_host_names_are_cut(prefix):
    (event,) = dmesg.parse(f"{prefix}{TIMEOUT}\n{prefix}{TIMEOUT}\n").events
    assert event == {"kind": "ring-timeout", "address": "0000:28:00.0", "count": 2, "line": TIMEOUT}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=1", "ring-timeout"),
        ("amdgpu 0000:03:00.0: amdgpu: GPU reset begin!", "gpu-reset"),
        ("amdgpu 0000:03:00.0: amdgpu: GPU reset(2) succeeded!", "gpu-reset-succeeded"),
        ("amdgpu 0000:03:00.0: amdgpu: GPU reset(1) failed", "gpu-reset-failed"),
        ("amdgpu 0000:03:00.0: amdgpu: GPU reset end with ret = -22", "gpu-reset-failed"),
        ("amdgpu 0000:03:00.0: [gfxhub0] no-retry page fault (src_id:0 ring:40 vmid:8)", "page-fault"),
        ("amdgpu 0000:01:00.0: GPU fault detected: 147 0x0a084802", "page-fault"),
        (
            "amdgpu 0000:03:00.0: Direct firmware load for amdgpu/navi10_mec.bin failed with error -2",
            "firmware",
        ),
        ("[drm:gfx_v10_0_init [amdgpu]] *ERROR* Failed to load gfx firmware!", "firmware"),
        ("amdgpu 0000:03:00.0: amdgpu: Fatal error during GPU init", "init-failed"),
        ("amdgpu 0000:03:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE", "mes-hang"),
        ("amdgpu: qcm fence wait loop timeout expired", "compute-hang"),
        ("kfd kfd: amdgpu: skipped device 1002:7340, PCI rejects atomics 145<0", "kfd-rejects-atomics"),
    ],
)
def test_kinds(line, kind):
    assert kinds(f"[    1.000000] {line}\n") == {(kind, 1)}


def test_lines_that_count():
    # Lines of other drivers are left out.
    assert kinds("i915 0000:00:02.0: Direct firmware load for i915/x.bin failed\nring a timeout\n") == set()

    # Only the last start counts.
    first = f"Linux version 6.1.0\n{TIMEOUT}\n"
    text = f"{first}Nov 20 kernel: Linux version 6.2.0\nkfd kfd: added device 1002:731f\n"
    log = dmesg.parse(text)
    assert log.events == []
    assert log.kfd_added == ["1002:731f"]

    # A log full of events is bounded.
    lines = (f"amdgpu 0000:{n >> 8:02x}:{n & 255:02x}.0: ring gfx timeout {'x' * 2000}" for n in range(5000))
    log = dmesg.parse("\n".join(lines))
    assert len(log.events) <= 40
    assert max(len(event["line"]) for event in log.events) <= 400


def test_recorded_tree(build):
    assert build.detect().facts["dmesg.events"].value is None
    assert "/var/log/kern.log: no such file" in build.detect().facts["dmesg.events"].source
    build.file("var/log/kern.log", "x" * (5 << 20) + f"\n{TIMEOUT}\n")
    assert build.detect().facts["dmesg.events"].source == "/var/log/kern.log"
    assert build.detect().value("dmesg.events")[0]["kind"] == "ring-timeout"
    build.file("dmesg.txt", "[    4.461722] [drm] amdgpu version: 5.6.19\n")
    assert build.detect().value("dmesg.driver") == "5.6.19"
    assert build.detect().value("dmesg.events") == []


def test_own_log_of_the_kernel(monkeypatch, tmp_path):
    """A record holds level, number and time before the text, and lines with its device behind it."""
    log = tmp_path / "kmsg"
    log.write_bytes(f"3,1,312522692,-;{TIMEOUT}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:28:00.0\n".encode())
    monkeypatch.setattr(dmesg, "KMSG", str(log))
    facts = dmesg.read_facts(Tree(Path("/")))
    assert facts["dmesg.events"].value[0]["line"] == TIMEOUT
    assert facts["dmesg.events"].source == str(log)


def test_own_log_that_is_never_empty_ends(monkeypatch):
    monkeypatch.setattr(dmesg, "KMSG", "/dev/zero")
    monkeypatch.setattr(dmesg, "_MOST_MESSAGES", 100)
    assert dmesg.read_facts(Tree(Path("/")))["dmesg.events"].value == []


def test_own_log_that_waits_for_more_does_not_block(monkeypatch, tmp_path):
    os.mkfifo(tmp_path / "kmsg")
    writer = os.open(tmp_path / "kmsg", os.O_RDWR)
    os.write(writer, f"3,1,1,-;{TIMEOUT}\n".encode())
    monkeypatch.setattr(dmesg, "KMSG", str(tmp_path / "kmsg"))
    assert len(dmesg.read_facts(Tree(Path("/")))["dmesg.events"].value) == 1
    os.close(writer)


def test_refused_log(monkeypatch):
    def refused(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(dmesg.os, "open", refused)
    facts = dmesg.read_facts(Tree(Path("/")))
    assert facts["dmesg.events"].value is None
    assert "/dev/kmsg: operation not permitted" in facts["dmesg.events"].source


@given(st.text())
def test_arbitrary_text_never_raises(text):
    assert isinstance(dmesg.parse(text + TIMEOUT).events, list)


@recorded
@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("gfx1201-ring-reset-recovered", {("ring-timeout", 1), ("ring-reset-succeeded", 1)}),
        ("rocm-amdgpu-168-page-fault", {("page-fault", 1)}),
        ("rx6800xt-gfxhub-page-fault-k7.1", {("page-fault", 1)}),
        (
            "rx5700xt-ring-timeout-baco-reset-k7.0",
            {
                ("ring-timeout", 1),
                ("ring-reset-failed", 1),
                ("gpu-reset", 1),
                ("gpu-reset-succeeded", 1),
                ("vram-lost", 1),
            },
        ),
    ],
)
def test_recorded_resets(name, events):
    assert kinds((FIXTURES / "dmesg-amdgpu-resets" / f"{name}.txt").read_text()) == events


@recorded
def test_recorded_atomics_and_the_start_of_a_v520():
    # Recorded atomics.
    log = dmesg.parse((FIXTURES / "dmesg-pcie-atomics" / "lines.txt").read_text())
    assert {event["kind"] for event in log.events} == {
        "kfd-rejects-atomics",
        "no-pcie-atomics",
        "kfd-skips-gpu",
    }
    assert log.kfd_skipped == ["1002:67df", "1002:699f", "1002:687f", "1002:73bf"]

    # Recorded start of a v520.
    log = dmesg.parse((FIXTURES / "dmesg-rdna1-v520-boot-dkms5.6.19" / "dmesg.txt").read_text())
    assert log.gpus == {"0000:00:1d.0": {"vram_bytes": 8048 << 20, "cus": 36}}
    assert (log.driver, log.kfd_added, log.events) == ("5.6.19", ["1002:7362"], [])
