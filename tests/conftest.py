"""Puts this folder on sys.path, for the helpers that tests of several rooms share."""

import os

# Threads of PyTorch spin while they wait for each other: with as many of them in each worker as there are
# cores, small convolutions take ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Every time the same algorithms of the bypass, and nothing in the user's plan file; the tests of measuring
# say otherwise for themselves.
os.environ["ROCMPROBE_BYPASS_MEASURE"] = "0"
os.environ["ROCMPROBE_BYPASS_PLANS"] = "0"
