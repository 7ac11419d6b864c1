"""A simulated machine whose MIOpen keeps its searches, results that recommend its default, and shapes."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sample
from launched import profile
from runs import cli

from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import DIRECTIONS, Configuration, Results, Setting
from rocmprobe.model.shapes import write
from rocmprobe.simulate.machines import load_machine

RIGHT, HANGS = "conv2d-fp32-n1-c4-i8x8-k4-f3x3-p1", "conv2d-fp32-n1-c4-i8x8-k4-f5x5-p2"
SEARCH = """
[[faults]]
library = "miopen"
effect = "search"
seconds = 40
kept = true
"""
HANG = """
[[faults]]
library = "miopen"
effect = "hang"
problem = "f5x5"
directions = ["bwd-data"]
"""
WRONG = """
[[faults]]
library = "miopen"
effect = "wrong"
"""
_MACHINE = """
summary = "RX 5600 XT that pretends to be gfx1030"
source = "for tests"

[[gpus]]
name = "AMD Radeon RX 5600 XT"
vendor = "amd"
driver = "amdgpu"
native_isa = "gfx1010"
effective_isa = "gfx1030"
cus = {cus}

[facts]
"kfd.device" = "present"
"miopen.version" = "{miopen}"
"torch.version" = "1.13.1+rocm5.2"
"torch.kind" = "rocm"

[budgets]
first_call = 2
steady = 2
"""
DEFAULT = Setting("default", "", "native")


@dataclasses.dataclass(frozen=True)
class Place:
    """A folder with the files of the command, and of the caches."""

    folder: Path

    def machine(self, faults: str = SEARCH, miopen: str = "2.17.0", cus: int = 36) -> Path:
        path = self.folder / "card.toml"
        path.write_text(_MACHINE.format(miopen=miopen, cus=cus) + faults)
        return path

    def results(self, setting: Setting = DEFAULT) -> Path:
        before = sample.rdna1()
        assert before.recommendation is not None
        recommendation = dataclasses.replace(
            before.recommendation, configuration=Configuration(setting.name, setting.env)
        )
        target = {"device": "cuda:0", "backend": "miopen"}
        results: Results = dataclasses.replace(
            before, simulated="card", settings=(setting,), recommendation=recommendation,
            machine=load_machine(str(self.folder / "card.toml")).machine,
            options={**before.options, "targets": [target]},
        )  # fmt: skip
        return profile(self.folder, results)

    def shapes(self, *problems: str, directions: Sequence[str] = DIRECTIONS) -> Path:
        path = self.folder / "shapes.json"
        counts = {each: int(each in directions) for each in DIRECTIONS}
        recorded: dict[str, Any] = {"device": "cuda", "counts": counts}
        write(path, {"problems": [{**parse_problem(each).as_json(), **recorded} for each in problems]})
        return path

    def warm(self, *arguments: object, caches: str = "caches") -> subprocess.CompletedProcess[str]:
        """``rocmprobe warm`` on the machine and results of this folder."""
        return cli(
            "warm", "--profile", self.folder / "results.json", "--simulate", self.folder / "card.toml",
            *arguments, cwd=self.folder, env={"ROCMPROBE_EXEC_CACHES": str(self.folder / caches)},
        )  # fmt: skip

    def caches(self, name: str = "caches") -> Path:
        """The only folder of a configuration."""
        (found,) = (self.folder / name).iterdir()
        return found

    def journal(self) -> list[dict[str, Any]]:
        lines = (self.caches() / "journal.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]
