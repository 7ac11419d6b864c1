"""Findings about a run. Each finding says what is wrong, and in which software layer."""
