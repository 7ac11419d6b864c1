"""The GPU runtimes through ctypes: loaded libraries, devices, memory, modules and compilers.

The GPUs that the kernel driver lists are here, too. Only the standard library is imported.
"""
