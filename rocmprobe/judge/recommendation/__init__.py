"""Recommended configuration, and the evidence for it."""
