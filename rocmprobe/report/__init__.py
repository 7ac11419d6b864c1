"""Renderers of a run's results for a browser, a CI service and a terminal."""
