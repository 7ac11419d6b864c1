"""Readers for GPUs: AMD, NVIDIA, KFD, PCI and the processes that use a GPU."""
