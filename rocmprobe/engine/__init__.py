"""Execution of a run: plan, child processes, journal, and the time limit of ``rocmprobe check``."""
