"""Explanation of a failure: causes, inferred from a log and facts."""
