"""Puts this folder on sys.path, for the helpers that tests of several rooms share.

Tests get the same algorithms of the bypass every time, and leave the user's plan file alone; the tests of
measuring say otherwise for themselves.
"""

import os

os.environ["ROCMPROBE_BYPASS_MEASURE"] = "0"
os.environ["ROCMPROBE_BYPASS_PLANS"] = "0"
