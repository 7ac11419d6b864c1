"""Renderers of a run's results for a browser, a CI service and a terminal. All of them are pure functions."""
