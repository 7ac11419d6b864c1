"""Code that runs in a child process."""
