"""Text utilities: reading of untrusted files, printing, logs and redaction."""
