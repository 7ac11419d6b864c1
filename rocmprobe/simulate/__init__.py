"""Simulated machines: facts from a table, and faults injected where a real machine would call the GPU."""
