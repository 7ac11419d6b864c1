"""Types of the facts about a machine and its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Optional, TypedDict, Union, get_args


class _KernelEvent(TypedDict):
    kind: str
    count: int
    line: str


class KernelEvent(_KernelEvent, total=False):
    """Messages of one kind about one GPU in the Linux kernel's log."""

    address: Optional[str]


class _Place(TypedDict):
    path: str
    filesystem: Optional[str]
    network: Optional[bool]
    writable: bool


class CacheFolder(_Place, total=False):
    """A folder to which MIOpen writes databases or compiled kernels."""

    exists: bool
    files: int
    bytes: int


class CompiledCache(TypedDict):
    """A cache of compiled kernels.

    - ``isas``: number of kernels and generated code files, by ISA
    - ``versions``: number of kernels, by Triton version
    - ``buffer_ops``: number of kernels that use buffer instructions
    - ``complete``: False if only some files of the cache were read
    """

    path: str
    kernels: int
    isas: dict[str, int]
    versions: dict[str, int]
    buffer_ops: int
    complete: bool


class UserFile(TypedDict):
    """A file that MIOpen wrote, with the GPU and the MIOpen version from the file name."""

    path: str
    gpu: str
    isa: str
    version: Optional[str]


class TorchDevice(TypedDict, total=False):
    """A GPU as torch describes it."""

    name: str
    gcnArchName: str
    pci_bus_id: int
    pci_device_id: int


# Names of facts, grouped by the type of their values.
TextFact = Literal[
    "amdgpu.origin", "amdgpu.version", "container.kind", "container.wsl", "cpu.name", "deep.cuda",
    "deep.error", "deep.hip", "deep.version", "dmesg.driver", "hip.version", "hipblaslt.path",
    "kernel.release", "kfd.device", "miopen.db_path", "miopen.version", "miopen.version_expected",
    "miopen.version_told", "os.id", "os.name", "os.version", "python.version", "rocblas.path",
    "rocm.version", "simulation.torch", "torch.build", "torch.cuda", "torch.hip", "torch.kind",
    "torch.path", "torch.python_tag", "torch.version", "rocminfo.message", "triton.version",
]  # fmt: skip
NumberFact = Literal[
    "amd.cards", "cpu.allowed", "cpu.cores", "cpu.threads", "deep.device_count",
    "limits.address_space_bytes", "limits.files", "limits.processes", "memory.available_bytes",
    "memory.bytes", "memory.limit_bytes", "memory.swap_bytes",
]  # fmt: skip
FlagFact = Literal["deep.available", "wsl.dxcore", "wsl.dxg"]
NamesFact = Literal[
    "access.groups", "access.groups_needed", "amdgpu.dkms", "deep.arch_list",
    "dmesg.kfd_added", "dmesg.kfd_skipped", "hipblaslt.targets", "kernel.parameters", "kfd.refused",
    "kfd.unlisted", "rocblas.targets", "rocminfo.gpus", "torch.targets", "wsl.librocdxg",
    "wsl.takes",
]  # fmt: skip
#: Facts that map a library or package to its path or version.
ByNameFact = Literal[
    "miopen.find_db", "miopen.kernel_db", "miopen.perf_db", "packages", "rocm.installs", "rocm.loader",
    "torch.libraries", "torch.loader", "torch.reroutes", "wsl.dids",
]  # fmt: skip
FolderFact = Literal["miopen.kernel_cache", "miopen.user_db"]
OtherFact = Literal[
    "access.nodes", "caches.inductor", "caches.triton", "cpu.quota",
    "deep.devices", "deep.library", "deep.switches", "dmesg.events", "dmesg.gpus", "miopen.user_files",
    "rocm.libraries",
]  # fmt: skip
#: Names of all known facts. mypy rejects a lookup of any other name.
FactName = Union[TextFact, NumberFact, FlagFact, NamesFact, ByNameFact, FolderFact, OtherFact]

_NAMES = list[str]

#: Type of each fact, keyed by name. Reports can show other facts, too, but no code depends on other facts.
FACTS: Mapping[str, Any] = {
    **dict.fromkeys(get_args(TextFact), str),
    **dict.fromkeys(get_args(NumberFact), int),
    **dict.fromkeys(get_args(FlagFact), bool),
    **dict.fromkeys(get_args(NamesFact), _NAMES),
    **dict.fromkeys(get_args(ByNameFact), dict[str, Optional[str]]),
    **dict.fromkeys(get_args(FolderFact), CacheFolder),
    "rocm.libraries": dict[str, _NAMES],
    "access.nodes": list[dict[str, Any]],
    **dict.fromkeys(("caches.inductor", "caches.triton"), CompiledCache),
    "miopen.user_files": list[UserFile],
    "cpu.quota": float,
    "deep.devices": list[TorchDevice],
    "deep.library": Union[str, int],
    "deep.switches": dict[str, Union[bool, str]],
    "dmesg.events": list[KernelEvent],
    "dmesg.gpus": dict[str, dict[str, int]],
}

#: The type of each field of ``model.results.Gpu``.
GPU_FACTS: Mapping[str, Any] = {
    **dict.fromkeys((
        "native_isa", "effective_isa", "name", "pci_id", "revision", "vendor", "driver", "address",
        "partition", "uuid", "pcie_link", "vbios", "vram_vendor",
    ), str),
    **dict.fromkeys(("cus", "vram_bytes", "simds", "wave_size", "order", "index", "vram_used_bytes"), int),
    **dict.fromkeys(("apu", "pcie_atomics"), bool),
    **dict.fromkeys((
        "busy_percent", "temperature_edge_c", "temperature_junction_c", "temperature_memory_c",
        "fan_rpm", "power_w", "core_clock_mhz", "memory_clock_mhz",
    ), float),
}  # fmt: skip


def type_of(name: str) -> Any:
    """Return the type of the fact ``name``, or Any for an unknown fact."""
    if name.startswith(("errors.", "variables.")):
        return str
    return FACTS.get(name, Any)
