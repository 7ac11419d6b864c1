"""Program that runs the self-test of the kernels in a child process.

Usage: ``python -m rocmprobe.kernels PARENT SECONDS INDEX DTYPE FOLDER RUNTIME COMPILER``. On Linux, the
process ends after SECONDS, or when the process with the id PARENT ends.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from rocmprobe.kernels import gate
from rocmprobe.kernels.gate import KernelVerdict
from rocmprobe.kernels.module import KernelDevice
from rocmprobe.kernels.self_test import run_and_record, verdict_of
from rocmprobe.kernels.unavailable import KernelsUnavailable
from rocmprobe.lifetime import die_after, die_with_parent


def main(arguments: list[str]) -> None:
    """Run the self-test and print the verdict as the last line."""
    parent, seconds, index, dtype, folder, *libraries = arguments
    if sys.platform == "linux":
        die_with_parent(int(parent))
        die_after(int(seconds))
    for library in libraries:
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    try:
        device = KernelDevice(int(index))
        verdict = verdict_of(run_and_record(device, dtype, Path(folder) if folder else None))
    except KernelsUnavailable as unavailable:
        verdict = KernelVerdict("failed", unavailable.reason, unavailable.log)
    print(gate.to_line(verdict))


if __name__ == "__main__":
    main(sys.argv[1:])
