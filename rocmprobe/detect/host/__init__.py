"""Readers for the operating system: kernel, memory, containers, device nodes, kernel log."""
