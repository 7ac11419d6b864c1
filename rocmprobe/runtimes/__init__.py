"""The GPU runtimes through ctypes: which ones this process has loaded, their devices, memory, modules and
compilers. The standard library only."""
