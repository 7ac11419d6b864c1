"""Convolution kernels of our own: their source, how it is compiled on the user's machine, and how a problem
becomes launches of them. No torch: tensors are addresses, shapes and strides."""
