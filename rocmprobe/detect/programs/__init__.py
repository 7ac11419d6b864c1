"""Functions that run diagnostic programs with a time limit, and parsers for their output."""
