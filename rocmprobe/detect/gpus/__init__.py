"""GPUs, as the kernel, PCI and rocmprobe's own tables describe them."""
