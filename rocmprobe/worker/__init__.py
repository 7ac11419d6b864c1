"""What runs inside the child process: the only room, with the bypass and the backends, that imports torch."""
