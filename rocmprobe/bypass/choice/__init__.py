"""Choice of the algorithm for a problem. The package has the possible plans, the cost model, measurements,
and the plan file."""
