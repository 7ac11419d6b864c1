"""Findings: what is wrong, which layer, and why."""
