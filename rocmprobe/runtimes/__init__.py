"""The GPU runtimes through ctypes: which ones this process has loaded, their devices, memory, modules and
compilers; and the GPUs that the kernel driver lists. The standard library only."""
