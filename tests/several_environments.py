"""A joined run of several Python environments, made from results of one each."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.members import choose
from rocmprobe.model.results import SCHEMA_VERSION, Fact, JoinedRun, Member, Results
from rocmprobe.model.results_file import write_joined, write_results


def runs(torch: str = "", **given: Results) -> dict[str, Results]:
    """The judged results of each environment, all with one version of ``torch``, or each with another."""
    found = {}
    for name, each in given.items():
        facts = {**each.machine.facts, "torch.version": Fact(torch or f"2.{len(found)}", "torch")}
        found[name] = judge(dataclasses.replace(each, machine=dataclasses.replace(each.machine, facts=facts)))
    return found


def together(torch: str = "", **given: Results) -> JoinedRun:
    """The choice among several environments."""
    return choose(unjudged(*given), runs(torch, **given))


def unjudged(*names: str) -> JoinedRun:
    """A joined run that has begun."""
    members = tuple(Member(name, f"/opt/{name}/bin/python") for name in names)
    return JoinedRun(SCHEMA_VERSION, "0.1.0", "2026-11-20T14:03:11Z", True, members)


def written(folder: Path, **given: Results) -> Path:
    """Write a joined run with its members into ``folder``; returns its results.json."""
    for name, each in runs(**given).items():
        (folder / name).mkdir(parents=True)
        write_results(each, folder / name / "results.json")
    write_joined(together(**given), folder / "results.json")
    return folder / "results.json"
