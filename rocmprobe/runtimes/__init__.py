"""Access to GPU runtimes with ctypes: loaded libraries, devices, memory, modules and compilers.

``kfd`` parses the list of GPUs in sysfs. These modules need only the standard library.
"""
