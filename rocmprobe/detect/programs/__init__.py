"""Functions that run diagnostic programs with a timeout, and parsers for their output."""
