"""Execution of users' programs, under a configuration or with their convolutions recorded.

PYTHONPATH puts the folder ``inject/site`` into the program's Python. The rest of ``inject`` is imported there
after torch was imported. All other modules run in rocmprobe's own process, without torch.
"""
