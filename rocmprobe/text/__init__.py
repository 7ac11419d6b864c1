"""Text: files of others read, what is printed, logs, and what is taken out of either."""
