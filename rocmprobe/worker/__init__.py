"""Code that runs in a child process, with torch or with the GPU libraries."""
