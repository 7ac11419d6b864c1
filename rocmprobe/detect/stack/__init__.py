"""The installed ROCm and torch: versions, libraries, device code, databases."""
