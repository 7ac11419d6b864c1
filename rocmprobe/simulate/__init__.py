"""Simulated machines: recorded facts, and faults injected into library calls."""
