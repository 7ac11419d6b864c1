"""Execution of users' programs, under a configuration or with their convolutions recorded.

``inject/site`` is a folder that PYTHONPATH puts into the program's Python. The rest of ``inject`` is imported
there after torch was imported. All other modules run in rocmprobe's own process, without torch.
"""
