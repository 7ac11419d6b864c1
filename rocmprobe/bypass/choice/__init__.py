"""Choice of the algorithm for a problem: possible plans, cost model, measurements, and the plan file."""
