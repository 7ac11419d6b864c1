"""Small real networks and their training, for the checks ``train-*``, ``batch-sizes`` and ``soak``."""
