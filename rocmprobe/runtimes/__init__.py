"""Access to GPU runtimes with ctypes: loaded libraries, devices, memory, modules and compilers.

The GPUs in the kernel driver's list are here, too. Only the standard library is imported.
"""
