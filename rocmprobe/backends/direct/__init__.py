"""Calls to HIP, rocBLAS and MIOpen through ctypes, without torch and NumPy.

Make these calls only in a child process, because a call can crash or hang.
"""
