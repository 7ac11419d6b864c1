"""Sections of the HTML page."""
