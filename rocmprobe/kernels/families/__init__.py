"""Families of kernels: the options of each family for a problem, and the launches of an option."""
