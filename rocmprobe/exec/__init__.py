"""Execution of users' programs, under a configuration or with their convolutions recorded.

The modules in ``inject`` run in the program's Python. All other modules run in rocmprobe's own process,
without torch.
"""
