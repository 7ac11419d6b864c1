"""Knowledge about chips, variables, settings, solvers, causes and stacks, from the tables in ``data/``."""
