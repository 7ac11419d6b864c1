"""Readers for GPUs and for the processes that use them."""
