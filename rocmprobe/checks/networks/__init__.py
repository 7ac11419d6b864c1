"""Networks and training for the checks ``train-*`` and ``soak``."""
