"""Knowledge about chips, environment variables, settings, solvers, causes and stacks, from the tables in
``data/``.
"""
