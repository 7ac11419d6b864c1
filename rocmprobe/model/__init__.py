"""What a run asks and what it learns: checks, problems, outcomes, results."""
