"""The installed ROCm and torch: versions, libraries, code objects, databases."""
