"""Execution of users' programs, under a configuration or with their convolutions recorded.

The program's Python finds ``inject/site`` through PYTHONPATH. After the program has imported torch, its
Python also imports the other modules of ``inject``. All other modules run in rocmprobe's own process, without
torch.
"""
