"""Families of kernels. A family lists its options for a problem, and makes the launches of an option."""
