"""Builds the files of a machine below a folder, for the readers of ``rocmprobe.detect``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

import pytest

from rocmprobe.detect import detect
from rocmprobe.model.results import Machine

NODES = "sys/class/kfd/kfd/topology/nodes"
RX_5600_XT = {
    "simd_count": 72,
    "simd_per_cu": 2,
    "gfx_target_version": 100100,
    "vendor_id": 0x1002,
    "device_id": 0x731F,
    "location_id": 0x0B00,
    "domain": 0,
    "drm_render_minor": 128,
    "local_mem_size": 0,
}
RX_5600_XT_VRAM = 6425673728
CPU_NODE = {"simd_count": 0, "simd_per_cu": 0, "gfx_target_version": 0, "vendor_id": 0, "device_id": 0}


def tree(
    rule: str, files: Mapping[str, Union[str, bytes]], facts: Mapping[str, Any],
    sources: Mapping[str, str] = {}, /, **environ: str,
) -> Any:  # fmt: skip
    """A row for ``Build.check``: the rule, the files of a machine, its facts, and parts of their sources."""
    return pytest.param(files, environ, facts, sources, id=rule)


class Build:
    """A machine in the making: files below ``root``, and ``detect`` on them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def file(self, name: str, content: Union[str, bytes]) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def files(self, contents: Mapping[str, Union[str, bytes]]) -> None:
        """Write files by name. The content "-> TARGET" makes a link."""
        for name, content in contents.items():
            if isinstance(content, str) and content.startswith("-> "):
                self.link(name, content[len("-> ") :])
            else:
                self.file(name, content)

    def check(
        self, files: Mapping[str, Union[str, bytes]], environ: Mapping[str, str], facts: Mapping[str, Any],
        sources: Mapping[str, str],
    ) -> Machine:  # fmt: skip
        """Write files, and check facts and parts of their sources."""
        self.files(files)
        machine = self.detect(**environ)
        values = {name: machine.value(name) for name in facts}
        assert values == facts, values
        told = {name: machine.facts[name].source for name in sources}
        assert all(words in told[name] for name, words in sources.items()), told
        return machine

    def link(self, name: str, target: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def node(self, index: int, properties: Mapping[str, int], vram: Optional[int] = None) -> None:
        lines = "".join(f"{name} {value}\n" for name, value in properties.items())
        self.file(f"{NODES}/{index}/properties", lines)
        if vram is not None:
            bank = f"heap_type 1\nsize_in_bytes {vram}\nflags 0\n"
            self.file(f"{NODES}/{index}/mem_banks/0/properties", bank)

    def device(self, address: str, pad: bytes = b"", **files: str) -> None:
        """A PCI function; ``pad`` goes after every content, as captures of sysfs have it."""
        contents = {"vendor": "0x1002", "class": "0x030000", "revision": "0x00", **files}
        for name, content in contents.items():
            self.file(f"sys/bus/pci/devices/{address}/{name}", content.encode() + b"\n" + pad)

    def rx_5600_xt(self) -> None:
        self.node(0, CPU_NODE)
        self.node(1, RX_5600_XT, RX_5600_XT_VRAM)
        self.device(
            "0000:0b:00.0",
            device="0x731f",
            revision="0xca",
            mem_info_vram_total=str(RX_5600_XT_VRAM),
            uevent="DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:731F\nPCI_SLOT_NAME=0000:0b:00.0",
        )

    def detect(self, **environ: str) -> Machine:
        return detect(self.root, environ)
