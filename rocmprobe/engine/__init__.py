"""Running the checks: the plan, the trials in child processes, the journal, the time limit of a check."""
