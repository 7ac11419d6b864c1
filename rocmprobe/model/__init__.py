"""What a run tests and what it learns: checks, problems, outcomes, results."""
