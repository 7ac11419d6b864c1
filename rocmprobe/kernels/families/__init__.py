"""A convolution as launches: the families of kernels, what each offers for a problem, and what is launched.
Pure."""
