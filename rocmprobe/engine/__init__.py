"""The execution of checks: plan, trials in child processes, journal, time limit of a check."""
