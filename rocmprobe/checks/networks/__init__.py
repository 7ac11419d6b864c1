"""Small real networks, and training them: what the checks ``train-*`` ask about."""
