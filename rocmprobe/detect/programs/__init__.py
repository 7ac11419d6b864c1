"""Diagnostic programs of ROCm, and parsers for their output."""
