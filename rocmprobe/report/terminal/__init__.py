"""Output for a terminal, for GitHub and as Markdown."""
