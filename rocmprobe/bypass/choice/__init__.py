"""Choice of the algorithm for a problem, by measurement or by a cost model."""
