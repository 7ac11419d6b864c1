"""Functions that start, limit, observe, end and clean up after processes."""
