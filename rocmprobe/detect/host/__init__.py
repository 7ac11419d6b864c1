"""The operating system: kernel, memory, containers, access to the device nodes, kernel log."""
