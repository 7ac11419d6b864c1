"""The GPUs, as the kernel, PCI and the tables describe them."""
