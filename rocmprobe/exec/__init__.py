"""Running other people's programs: under a configuration, or with their convolutions recorded.

``site`` is what a Python below finds in PYTHONPATH and ``inside`` what it imports once it has torch; the
rest runs in rocmprobe's own process, without torch.
"""
