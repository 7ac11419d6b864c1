"""Which algorithm computes a problem: possible plans, the cost model, measurements and the file of them."""
