"""Programs that are asked, each bounded, and what they print."""
