"""Functions that start, limit, watch, end and clean up after processes."""
