"""From outcomes to findings to a recommendation: pure functions."""
