"""Processes: started with limits, watched, ended, and cleaned up after."""
