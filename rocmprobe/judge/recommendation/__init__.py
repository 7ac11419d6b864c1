"""Which configuration to use, and what is known of it."""
