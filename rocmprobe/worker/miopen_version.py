"""Prints the version that a MIOpen library reports of itself: ``python miopen_version.py LIBRARY``.

Run by path in a process of its own: loading the library brings in the whole of ROCm, which may crash.
No GPU is touched.
"""

import ctypes
import sys

if __name__ == "__main__":
    numbers = [ctypes.c_size_t() for _ in range(3)]
    status = ctypes.CDLL(sys.argv[1]).miopenGetVersion(*map(ctypes.byref, numbers))
    if status:
        sys.exit(f"miopenGetVersion gave status {status}")
    print(".".join(str(number.value) for number in numbers))
