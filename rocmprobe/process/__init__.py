"""Functions that start, observe and end processes."""
