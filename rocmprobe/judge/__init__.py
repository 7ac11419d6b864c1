"""From outcomes to findings to a recommendation, and from logs to causes: pure functions."""
