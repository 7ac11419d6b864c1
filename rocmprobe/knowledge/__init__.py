"""What is known of chips, variables, settings, solvers, causes and builds, from the tables in ``data/``."""
