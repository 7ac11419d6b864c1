"""Execution of checks: plan, trials in child processes, journal, and the watchdog of ``rocmprobe check``."""
