"""Text utilities: reading foreign files, printing, logs and redaction."""
