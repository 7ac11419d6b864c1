"""Readers for the installed ROCm and torch: versions, libraries, device code, databases."""
