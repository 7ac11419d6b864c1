"""Diagnose convolution on unsupported AMD GPUs and recommend a configuration that works."""

__version__ = "0.2.0"
