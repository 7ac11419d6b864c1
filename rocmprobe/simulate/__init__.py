"""Simulated machines: facts from a table, and faults injected in place of calls to a GPU."""
