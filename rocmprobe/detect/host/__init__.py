"""The operating system: kernel, memory, containers, who may open the device nodes, the kernel's log."""
