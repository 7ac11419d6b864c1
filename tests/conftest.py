"""Puts this folder on sys.path, for the helpers that tests of several rooms share."""
