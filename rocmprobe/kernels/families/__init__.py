"""Families of kernels: each lists the kernels that can compute a convolution, and prepares their launches."""
