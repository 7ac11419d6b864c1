"""Which algorithm computes a problem: the possible plans, the cost model, measurements and the file of them."""
