"""Execution of checks: plan, trials in child processes, journal, and the time limit of ``rocmprobe
check``."""
