"""Runners for diagnostic programs, each with a time limit, and parsers for their output."""
