"""Access to GPU runtimes with ctypes. These modules need only the standard library."""
