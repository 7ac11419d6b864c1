"""Runs diagnostic programs, each with a time limit, and parses their output."""
