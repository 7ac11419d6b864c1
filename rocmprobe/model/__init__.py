"""Data model of a run: checks, problems, outcomes and results."""
