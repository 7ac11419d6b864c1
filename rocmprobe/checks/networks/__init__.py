"""Networks and training for the checks ``train-*``, ``batch-sizes`` and ``soak``."""
