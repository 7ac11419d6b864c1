"""A patched model that a library does not run: one warning at the end of the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: A trainer as in some libraries: it copies the model, or builds a new one from its description.
PROGRAM = """
import copy, sys, torch
from rocmprobe import bypass

def build():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3))

class Trainer:
    def __init__(self, model, habit):
        self.model = build() if habit == "rebuilds" else copy.deepcopy(model) if habit == "copies" else model

    def train(self):
        self.model(torch.ones(1, 1, 5, 5)).sum().backward()

model = build()
bypass.patch(model)
habit, _, installed = sys.argv[1].partition("+")
if installed:
    bypass.install("cpu")
Trainer(model, habit).train()
"""


@pytest.mark.parametrize(
    ("habit", "warns"), [("uses", False), ("copies", False), ("rebuilds", True), ("rebuilds+install", False)]
)
@pytest.mark.thorough
def test_only_a_rebuilt_model_warns(habit, warns):
    ended = subprocess.run([sys.executable, "-c", PROGRAM, habit], capture_output=True, text=True, check=True)
    assert ended.stderr.count("Use rocmprobe.bypass.install()") == warns, ended.stderr
