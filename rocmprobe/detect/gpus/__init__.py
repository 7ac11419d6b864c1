"""The GPUs: what the kernel, PCI and the tables say of each."""
