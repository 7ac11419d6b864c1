"""``rocmprobe check``: one answer about one configuration within a time limit.

Two processes. The first (``watch``) touches nothing that can block, keeps the time and gives the verdict. The
second (``asking``) looks at the machine and puts the questions to a worker; it may hang with the GPU.
"""
