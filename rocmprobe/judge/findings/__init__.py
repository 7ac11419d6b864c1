"""Findings: each says what is wrong, in which layer of the software, and why."""
