"""Messages of amdgpu and KFD in the log of the Linux kernel.

Sources of the messages: linux drivers/gpu/drm/amd (amdgpu_ring.c, amdgpu_job.c, amdgpu_device.c, gmc_v*.c,
kfd_device.c, kfd_device_queue_manager.c) of kernels 4.15 to 7.1, and the DKMS driver.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Optional

from rocmprobe.detect.tree import ReadError, Tree
from rocmprobe.model.facts import KernelEvent
from rocmprobe.model.results import Fact
from rocmprobe.text.plain_text import first_words

KMSG = "/dev/kmsg"
#: Files that contain the log as text, the most complete first. A recorded tree often has a /dmesg.txt.
_FILES = ("/var/log/kern.log", "/var/log/dmesg")
_RECORDED = ("/dmesg.txt", "/var/log/dmesg", "/var/log/kern.log")
_TAIL = 4 << 20
#: Largest number of messages that are read. By default, about ten thousand fit into the kernel's buffer.
_MOST_MESSAGES = 50_000
_MESSAGE = 8192
_MOST_EVENTS = 40
_LONGEST = 400

_BOOT = "Linux version "
#: Prefix of a line: the time and, in files, the host's name. The prefix is removed, because this name is
#: private.
_PREFIX = re.compile(r"^(?:.*?\bkernel: ?)?(?:<[0-9]+>)?(?:\[[^\]\n]*[0-9]\] ?)?")
_OURS = re.compile(r"amdgpu|\bkfd|\bradeon\b")
_ADDRESS = re.compile(r"\b([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b")
#: Kinds of events. The first pattern that matches decides the kind.
_KINDS = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"PCI rejects atomics", "kfd-rejects-atomics"),
        (r"PCIE atomic ops is not supported", "no-pcie-atomics"),
        (r"\bkfd\b.*(?:skipped device|not supported on this ASIC)|supported_devices", "kfd-skips-gpu"),
        (r"\bring \S+ timeout\b", "ring-timeout"),
        (r"\b[Rr]ing \S+ reset succe", "ring-reset-succeeded"),
        (r"\b[Rr]ing \S+ reset fail", "ring-reset-failed"),
        (r"GPU reset(?:\([0-9]+\))? succeeded", "gpu-reset-succeeded"),
        (r"GPU reset(?:\([0-9]+\))? fail|GPU reset end with ret = -|GPU Recovery Failed|ASIC reset failed",
         "gpu-reset-failed"),
        (r"GPU reset begin", "gpu-reset"),
        (r"VRAM is lost", "vram-lost"),
        (r"\bpage fault \(src_id|GPU fault detected:", "page-fault"),
        (r"Direct firmware load for \S+ failed|(?i:fail(?:ed)? to (?:load|request|get) .*(?:firmware|ucode))|"
         r"firmware .*not found", "firmware"),
        (r"Fatal error during GPU init|hw_init of IP block <\S+> failed|probe of \S+ failed with error",
         "init-failed"),
        (r"MES failed to respond|MES might be in unrecoverable state", "mes-hang"),
        (r"I'm not done with your (?:previous )?command|SMU.*(?:no response|not respon)", "smu-hang"),
        (r"fence wait loop timeout|unsuccessful queues preemption|[Qq]ueue preemption time ?out|"
         r"Failed to (?:evict|suspend) (?:process )?queue", "compute-hang"),
        (r"device lost from bus|GPU is disconnected|Surprise removal", "gpu-lost"),
        (r"[Uu]ncorrectable (?:hardware )?errors? (?:detected|\()", "memory-error"),
    )
)  # fmt: skip
#: Pattern that matches events of all kinds. Most lines match no kind, and need only this search.
_ANY_KIND = re.compile("|".join(f"(?:{pattern.pattern})" for pattern, _ in _KINDS))
_BOOT_WORDS = ("amdgpu version", "VRAM: ", "active_cu_number", " device ")
_VERSION = re.compile(r"\bamdgpu version: ([0-9][\w.-]*)")
_VRAM = re.compile(r"\bVRAM: ([0-9]{1,9})M 0x")
_CUS = re.compile(r"\bactive_cu_number ([0-9]{1,5})")
_ADDED = re.compile(r"\bkfd: (?:amdgpu: )?added device ([0-9a-f]{4}:[0-9a-f]{4})")
_SKIPPED = re.compile(r"\bskipped device ([0-9a-f]{4}:[0-9a-f]{4})")


@dataclass
class Log:
    """Events and facts about AMD GPUs in a kernel log.

    - ``events``: one dict for each kind of event and GPU, with the keys "kind", "address", "count" and "line"
      (the first line of this kind)
    - ``gpus``: PCI address -> "vram_bytes" and "cus", from messages at boot
    - ``kfd_added``: GPUs that KFD accepted, as VENDOR:DEVICE
    - ``kfd_skipped``: GPUs that KFD rejected, as VENDOR:DEVICE
    """

    events: list[KernelEvent] = field(default_factory=list)
    gpus: dict[str, dict[str, int]] = field(default_factory=dict)
    driver: Optional[str] = None
    kfd_added: list[str] = field(default_factory=list)
    kfd_skipped: list[str] = field(default_factory=list)


def read_facts(tree: Tree) -> dict[str, Fact]:
    """Return the fields of ``Log`` as facts, e.g. ``dmesg.events``."""
    names = ("events", "gpus", "driver", "kfd_added", "kfd_skipped")
    text, source = _log(tree)
    if text is None:
        return {f"dmesg.{name}": Fact(None, source) for name in names}
    log = parse(text)
    return {f"dmesg.{name}": Fact(getattr(log, name), source) for name in names}


def parse(text: str) -> Log:
    """Parse a kernel log from dmesg, journalctl or a log file. Never raise an exception.

    Only the last boot in the log is used.
    """
    log = Log()
    events: dict[tuple[str, Optional[str]], KernelEvent] = {}
    for raw in text[max(0, text.rfind(_BOOT)) :].splitlines():
        line = _PREFIX.sub("", first_words(raw, _LONGEST), count=1).strip()
        if _OURS.search(line):
            match = _ADDRESS.search(line)
            address = match.group(1) if match else None
            _take_boot(log, line, address)
            _take_event(events, line, address)
    log.events = list(events.values())
    return log


def _take_event(
    events: dict[tuple[str, Optional[str]], KernelEvent], line: str, address: Optional[str]
) -> None:
    if not _ANY_KIND.search(line):
        return
    kind = next(kind for pattern, kind in _KINDS if pattern.search(line))
    event = events.get((kind, address))
    if event:
        event["count"] += 1
    elif len(events) < _MOST_EVENTS:
        events[kind, address] = {"kind": kind, "address": address, "count": 1, "line": line}


def _take_boot(log: Log, line: str, address: Optional[str]) -> None:
    if not any(word in line for word in _BOOT_WORDS):
        return
    version, added, skipped = _VERSION.search(line), _ADDED.search(line), _SKIPPED.search(line)
    if version:
        log.driver = version.group(1)
    for match, devices in ((added, log.kfd_added), (skipped, log.kfd_skipped)):
        if match and match.group(1) not in devices and len(devices) < _MOST_EVENTS:
            devices.append(match.group(1))
    if address is None or (address not in log.gpus and len(log.gpus) >= _MOST_EVENTS):
        return
    vram, cus = _VRAM.search(line), _CUS.search(line)
    if vram:
        log.gpus.setdefault(address, {})["vram_bytes"] = int(vram.group(1)) << 20
    if cus:
        log.gpus.setdefault(address, {})["cus"] = int(cus.group(1))


def _log(tree: Tree) -> tuple[Optional[str], str]:
    refused = []
    if tree.own:
        try:
            return _kmsg(), KMSG
        except OSError as error:
            refused.append(f"{KMSG}: {(error.strerror or 'unreadable').lower()}")
    for name in _FILES if tree.own else _RECORDED:
        try:
            text = tree.read(name, limit=_TAIL, tail=True)
        except ReadError as error:
            refused.append(f"{name}: {error}")
            continue
        if text.strip():
            return text, name
        refused.append(f"{name}: empty")
    return None, "; ".join(refused)


def _kmsg() -> str:
    """Return every message in the kernel's buffer, one per line.

    Format: linux Documentation/ABI/testing/dev-kmsg, "level,number,time,flags;text".
    """
    handle = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    lines = []
    try:
        for _ in range(_MOST_MESSAGES):
            try:
                record = os.read(handle, _MESSAGE)
            except BlockingIOError:
                break
            except BrokenPipeError:
                # The message was overwritten before it was read. The next read returns the next message.
                continue
            if not record:
                break
            text = record.partition(b";")[2].partition(b"\n")[0]
            lines.append(text.decode("utf-8", "replace"))
    finally:
        os.close(handle)
    return "\n".join(lines)
