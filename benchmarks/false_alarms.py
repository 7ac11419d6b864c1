"""Test that correct implementations pass the numeric checks of a level, with other operands for each seed.

The benchmark runs on this CPU all checks of the level except measurements and timed networks. The checks run
under their settings: the vendor library, PyTorch's own kernels and the bypass. Convolutions also run by each
algorithm of the bypass. Every result other than "pass" and "n/a" is a false alarm::

    python benchmarks/false_alarms.py --level quick --seeds 100 -o benchmarks/results/false_alarms.md
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from figures import heading, publish, table
from oracle import suite_requests

from rocmprobe import bypass
from rocmprobe.bypass.algorithms import ALGORITHMS
from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import DeviceFailure, NotApplicable
from rocmprobe.detect import detect
from rocmprobe.engine.plan import cases
from rocmprobe.engine.targets import find_targets
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.options import RunOptions
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import Setting
from rocmprobe.simulate.injector import Injector
from rocmprobe.worker.messages import Spec
from rocmprobe.worker.torch_driver import TorchDriver

#: States of a correct implementation.
OK = ("pass", "n/a")
CONVOLUTIONS = ("convolution", "convolution-kinds", "problem-matrix")


@lru_cache(maxsize=1)
def settings() -> dict[str, Setting]:
    found = {each.name: each for each in settings_for("onednn", "default", torch.__version__)}
    by_algorithm = {
        f"bypass by {name}": replace(
            found["bypass"], name=f"bypass by {name}", env={"ROCMPROBE_BYPASS_ALGORITHM": name}
        )
        for name in ALGORITHMS
    }
    return {**found, **by_algorithm}


def asked(level: str) -> list[Case]:
    """Return the cases of the level, each once. Convolutions under the bypass also run by each algorithm."""
    options = RunOptions(device="cpu", level=level)
    target = find_targets("cpu", detect())[0]
    plain = tuple(each for name, each in settings().items() if " by " not in name)
    found = {
        case.id: case
        for request in suite_requests()
        for case in cases(request, target, plain, options)
        if not case.exclusive
    }
    for case in list(found.values()):
        if case.setting == "bypass" and case.check in CONVOLUTIONS:
            for name in able(str(case.problem), str(case.direction)):
                forced = replace(case, setting=f"bypass by {name}")
                found[forced.id] = forced
    return list(found.values())


@cache
def able(problem: str, direction: str) -> tuple[str, ...]:
    """Return the algorithms of the bypass that can compute one direction of a problem."""
    parsed = parse_problem(problem)
    named = ((name, bypass.explain(parsed, "cpu", algorithm=name)[direction]) for name in ALGORITHMS)
    return tuple(name for name, explanation in named if explanation.algorithm == name)


@dataclass
class Seeded(CheckContext):
    """A CheckContext with other operands for each number. Number 0 has the operands of a run."""

    number: int = 0

    def seed(self) -> int:
        return super().seed() + self.number


def answered(case: Case, number: int) -> CheckResult:
    setting = settings()[case.setting]
    algorithm = setting.env.get("ROCMPROBE_BYPASS_ALGORITHM")
    driver = TorchDriver(Spec("cpu", "onednn", setting, seconds=0.0), lambda event: None, Injector())
    context = Seeded(**vars(driver.context(case)), number=number)
    if algorithm:
        os.environ["ROCMPROBE_BYPASS_ALGORITHM"] = algorithm
    try:
        return CHECKS[case.check].function(context)
    except NotApplicable as reason:
        return CheckResult("n/a", str(reason))
    except DeviceFailure as failure:
        return CheckResult("error", str(failure.__cause__))
    finally:
        os.environ.pop("ROCMPROBE_BYPASS_ALGORITHM", None)


def one_seed(arguments: tuple[str, int]) -> dict[str, Any]:
    level, seed = arguments
    torch.set_num_threads(1)
    states: Counter[tuple[str, str]] = Counter()
    shares: dict[tuple[str, str, str], float] = {}
    alarms = []
    for case in asked(level):
        answer = answered(case, seed)
        states[case.setting, answer.state] += 1
        if answer.state not in OK:
            message = f"{answer.state}: {answer.message}"
            alarms.append({"case": case.id, "setting": case.setting, "seed": seed, "message": message})
        for name, value in answer.numerics.items():
            limit = answer.numerics.get(f"{name}_limit", 1.0 if name == "bound_ratio" else None)
            if limit:
                key = case.check, case.dtype, name
                shares[key] = max(shares.get(key, 0.0), value / limit)
    return {"states": states, "shares": shares, "alarms": alarms}


def share_of(shares: Mapping[tuple[str, str, str], float], key: tuple[str, str, str]) -> str:
    return f"{shares[key]:.3f}" if key in shares else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--level", default="quick")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    os.environ["ROCMPROBE_BYPASS_MEASURE"] = os.environ["ROCMPROBE_BYPASS_PLANS"] = "0"
    states: Counter[tuple[str, str]] = Counter()
    shares: dict[tuple[str, str, str], float] = {}
    alarms: list[dict[str, Any]] = []
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        seeds = [(arguments.level, seed) for seed in range(arguments.seeds)]
        for number, found in enumerate(pool.imap_unordered(one_seed, seeds), 1):
            states.update(found["states"])
            alarms += found["alarms"]
            shares = {
                key: max(shares.get(key, 0), value) for key, value in {**shares, **found["shares"]}.items()
            }
            print(f"{number} of {len(seeds)} seeds, {len(alarms)} false alarms", flush=True)
    command = f"python benchmarks/false_alarms.py --level {arguments.level} --seeds {arguments.seeds}"
    settings_run = sorted({setting for setting, _ in states})
    alarms_of = Counter(each["setting"] for each in alarms)
    measures = sorted({measure for _, _, measure in shares})
    checks = sorted({key[:2] for key in shares})
    lines = [
        *heading("False alarms", command),
        f"{len(alarms)} false alarms in {sum(states.values())} results.",
        "",
        *(f"- {each['case']}, seed {each['seed']}: {each['message']}" for each in alarms),
        *table(
            ("setting", "pass", "n/a", "false alarms"),
            (
                (name, states[name, "pass"], states[name, "n/a"], alarms_of[name]) for name in settings_run
            ),
        ),
        "",
        "Largest share of each limit:",
        "",
        *table(
            ("check", "dtype", *measures),
            ((*check, *(share_of(shares, (*check, each)) for each in measures)) for check in checks),
            texts=2,
        ),
    ]  # fmt: skip
    publish(lines, arguments.output)


if __name__ == "__main__":
    main()
