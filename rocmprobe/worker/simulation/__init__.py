"""A simulated machine inside the child: what fails there, and the kernels that compute in its place."""
