"""Access to GPU runtimes with ctypes: loaded libraries, devices, memory, modules and compilers.

``kfd`` parses the kernel driver's list of GPUs. Only the standard library is imported.
"""
