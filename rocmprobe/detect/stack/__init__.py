"""ROCm and torch as they are installed: versions, libraries, code objects, databases."""
