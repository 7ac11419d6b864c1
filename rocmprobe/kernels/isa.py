"""Chip of a GPU: native ISA, effective ISA, compute units, and the target of the compiler.

The native ISA is the ISA of the chip. The runtime reports the effective ISA, which
``HSA_OVERRIDE_GFX_VERSION`` changes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from rocmprobe.kernels.unavailable import KernelsUnavailable
from rocmprobe.runtimes import kfd

#: An override can show chips with these native ISAs as OVERRIDE_ISA. The runtime then loads a code object
#: only if the header of the code object names OVERRIDE_ISA.
_OVERRIDABLE = ("gfx1010", "gfx1011", "gfx1012", "gfx1013")
OVERRIDE_ISA = "gfx1030"
_PROPERTIES_BYTES = 1 << 16


@dataclass(frozen=True)
class Chip:
    """Native ISA (e.g. "gfx1010") and number of compute units of a GPU."""

    isa: str
    compute_units: int


@dataclass(frozen=True)
class Target:
    """ISAs of a device.

    Attributes:
        native: ISA of the chip, e.g. "gfx1010".
        effective: ISA that the runtime reports, e.g. "gfx1030", without suffixes like ":xnack-".
        compiled: target of the compiler, e.g. "gfx1010:xnack-".
    """

    native: str
    effective: str
    compiled: str

    @property
    def patched(self) -> bool:
        """True if the header of the code object must be changed to ``effective``."""
        return self.native != self.effective


def hip_target(shown: str, native: str) -> Target:
    """Return the target of an AMD GPU.

    ``shown`` is the gcnArchName that HIP reports, e.g. "gfx1030" or "gfx90a:sramecc+:xnack-".

    Raises:
        KernelsUnavailable: if HIP reports another ISA than ``native``. RDNA1 GPUs (gfx1010 to gfx1013) can
            also be reported as gfx1030.
    """
    effective, _, features = shown.partition(":")
    if native == effective:
        if not features and native in _OVERRIDABLE:
            # Older runtimes do not report that XNACK is off. Without ``xnack-``, the compiler would generate
            # code that works with XNACK on or off.
            shown = f"{native}:xnack-"
        return Target(native, effective, shown)
    if native in _OVERRIDABLE and effective == OVERRIDE_ISA:
        return Target(native, effective, f"{native}:xnack-")
    # Code for another ISA can use instructions that the chip lacks, or omit workarounds that the chip needs.
    raise KernelsUnavailable(
        f"this GPU is {native}, but HIP reports {effective}: the kernels support an override only if "
        f"gfx101x is reported as {OVERRIDE_ISA}"
    )


def native_chip(pci_address: Optional[str], nodes: str = kfd.NODES) -> Chip:
    """Return the chip at a PCI address (e.g. "0000:03:00.0"), from KFD's topology.

    If the address is None or unknown to KFD, return the common ISA of all GPUs and the smallest number of
    compute units.

    Raises:
        KernelsUnavailable: if KFD has no GPU (as in WSL), or if the ISA is ambiguous.
    """
    found = [
        (kfd.pci_address(properties), isa, kfd.compute_units(properties) or 1)
        for properties in kfd.gpu_nodes(_names(nodes), lambda name: _text(Path(nodes, name))).values()
        if (isa := kfd.native_isa(properties))
    ]
    if not found:
        raise KernelsUnavailable(
            f"the native ISA of the GPU is unknown: {nodes} lists no GPU (WSL, or no amdgpu driver)"
        )
    slot = _slot(pci_address or "")
    here = [each for each in found if _slot(each[0]) == slot] or found
    isas = {isa for _, isa, _ in here}
    if len(isas) > 1:
        raise KernelsUnavailable(
            f"the native ISA of the GPU is unknown: {nodes} lists {', '.join(sorted(isas))}, but no GPU at "
            f"{pci_address or 'a known PCI address'}"
        )
    return Chip(isas.pop(), min(units for _, _, units in here))


def _slot(address: str) -> str:
    return address.partition(".")[0].lower()


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path: Path) -> Optional[str]:
    try:
        with path.open("rb") as stream:
            return stream.read(_PROPERTIES_BYTES).decode("ascii", "replace")
    except OSError:
        return None
