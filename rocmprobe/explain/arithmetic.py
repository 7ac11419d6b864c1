"""Rules that evaluate the numbers in an error message."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocmprobe.explain.extraction import Memory, reports_failure
from rocmprobe.explain.inference import Inference, LogContext
from rocmprobe.knowledge import causes

_GIB = 1024**3
#: If a program limits its own memory, the limit explains a failure only if it blocks more bytes than this.
_NOTICEABLE = 0.25 * _GIB
#: Maximum memory of a process for its kernels and the runtime. PyTorch does not count this memory.
_OF_A_PROCESS = 1.0 * _GIB
#: Free memory of this many times the requested size is enough, even if it is fragmented.
_AMPLE = 20
#: A GPU with less memory is part of a processor (APU). The BIOS sets its share of the main memory.
_SHARE_OF_AN_APU = 3 * _GIB
#: Bytes of LDS for one workgroup on every GCN, RDNA and CDNA chip up to MI300 (LLVM, User Guide for AMDGPU
#: Backend).
_LDS_BYTES = 65_536


def memory(context: LogContext) -> Iterator[Inference]:
    """Infer from the numbers of an out-of-memory message what uses the memory.

    Source: PyTorch c10/cuda/CUDACachingAllocator.cpp.
    """
    quantities = context.structure.memory
    if quantities is None:
        return
    total, remedy = quantities.total or 0.0, ""
    if 0 < total < _SHARE_OF_AN_APU:
        remedy = (
            f"The GPU has {_gib(total)} of dedicated memory, which the BIOS assigns to the processor's "
            "graphics. Assign 4 GB or more in the BIOS (UMA frame buffer)."
        )
    elif total >= 2 * _SHARE_OF_AN_APU:
        # Leave out the advice for APUs, because this GPU does not need more memory from the BIOS.
        remedy = causes.first_applicable(causes.cause("vram-oom").advice, context.words - {"apu"}, None)
    says, cure = _what_took(quantities)
    remedy = cure or remedy
    if says:
        yield Inference(says, {"vram-oom": 1.0}, "oom", remedy=remedy)
    elif remedy:
        yield Inference(f"the GPU's memory ({_gib(total)}) is full", {"vram-oom": 0.2}, "oom", remedy=remedy)


def _what_took(memory: Memory) -> tuple[str, str]:
    """Return a clause about what uses the memory, and a remedy.

    Both are "" if the numbers do not show the reason.
    """
    if memory.allowed is not None and memory.free and memory.free - memory.allowed > _NOTICEABLE:
        limit = f"the program limits itself to {_gib(memory.allowed)} (set_per_process_memory_fraction)"
        cure = (
            "Raise or remove the limit: `torch.cuda.set_per_process_memory_fraction(1.0)` in the program, "
            "or with the program's option. The GPU has free memory."
        )
        return f"{limit}, but {_gib(memory.free)} are free", cure
    if memory.requested and memory.total and memory.requested > memory.total:
        asks = f"an allocation of {_gib(memory.requested)} exceeds the GPU's {_gib(memory.total)}"
        return asks, ""
    if memory.requested and memory.free and memory.free > _AMPLE * memory.requested:
        says = (
            f"{_gib(memory.free)} are free, but {_gib(memory.requested)} were refused: a limit is the cause, "
            "not the size"
        )
        cure = (
            "The GPU has free memory, so a smaller batch does not help. Look for a limit: the program's "
            "memory fraction, `sysctl vm.max_map_count` (raise it to 1048576), `ulimit -l`, or a "
            "container's limit. On an integrated GPU, the BIOS sets the maximum."
        )
        return says, cure
    pieces = memory.reserved or 0.0
    if memory.requested and pieces > max(memory.requested, 0.1 * (memory.total or 0.0)):
        says = f"{_gib(pieces)} are reserved but unused: the free memory is fragmented"
        cure = (
            "Set `PYTORCH_HIP_ALLOC_CONF=garbage_collection_threshold:0.8,max_split_size_mb:256` "
            "(PYTORCH_CUDA_ALLOC_CONF with old torch), call `torch.cuda.empty_cache()` between steps, and "
            "use similar input sizes. If that is not enough, use a smaller batch or image."
        )
        return says, cure
    others = memory.of_others
    if others and memory.total and others > max(_OF_A_PROCESS, 0.2 * memory.total):
        cure = "Close other programs on the GPU: `rocm-smi --showpids` lists the processes."
        return f"other processes use {_gib(others)} of {_gib(memory.total)}", cure
    return "", ""


def _gib(size: float) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= 0.1 * _GIB else f"{size / 2**20:.0f} MiB"


def shared_memory(context: LogContext) -> Iterator[Inference]:
    """Infer that a kernel needs more LDS than the chip has.

    Source: LLVM, User Guide for AMDGPU Backend (64 KiB).
    """
    if context.structure.shared_memory:
        required, limit = context.structure.shared_memory
        if required > limit:
            of_chip = " (the most that AMD's chips have)" if limit == _LDS_BYTES else ""
            says = f"a kernel needs {required:,} bytes of LDS, but the limit is {limit:,}{of_chip}"
            remedy = (
                "The kernel's blocks are too large for this GPU: use a release of the package that supports "
                "it, or smaller blocks and fewer `num_stages`. GPU memory is not the cause."
            )
            yield Inference(says, {"triton-compile-failure": 4.6}, "triton", remedy=remedy)


_OVERFLOW = re.compile(
    r"(?i)(?:size calculation overflowed|integer multiplication overflow|integer overflow"
    r"|(?:negative|invalid) (?:dimension|size|length)s?[^\n]{0,20}-\d{6,}|\b18446744\d{12}\b|-2147483\d{3}\b)"
)


def overflow(context: LogContext) -> Iterator[Inference]:
    """Infer that a size overflowed its integer type.

    Source: the limits of int32 and uint64.
    """
    for line in context.lines:
        if _OVERFLOW.search(line.text) and reports_failure(line.text):
            yield Inference(
                f"line {line.number}: a size exceeds its integer type", {"miopen-size-limit": 3.0}
            )
            return
