"""The execution of other people's programs, under a configuration or with their convolutions recorded.

``inject/site`` is the folder that a Python below finds in PYTHONPATH. The rest of ``inject`` is imported
there once torch is loaded. Everything else runs in rocmprobe's own process, without torch.
"""
