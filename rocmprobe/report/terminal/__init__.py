"""What a terminal, GitHub and Markdown show."""
