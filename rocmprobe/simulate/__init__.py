"""Simulated machines: facts from a table, and the faults injected where a GPU would be entered."""
