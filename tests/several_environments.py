"""Results of one run of several Python environments, made from results of one each."""

from __future__ import annotations

import dataclasses

from rocmprobe.judge.judgement import judge
from rocmprobe.model.cases import target_key
from rocmprobe.model.results import Environment, Fact, Results


def together(torch: str = "", **runs: Results) -> Results:
    """One run of several environments, each as if it had been a run of its own, judged; all with one version
    of ``torch``, or each with another."""
    first = next(iter(runs.values()))
    outcomes, settings, targets, environments = [], [], [], []
    for name, each in runs.items():
        outcomes += [
            dataclasses.replace(outcome, environment=name, id=target_key(name, outcome.id))
            for outcome in each.outcomes
        ]
        settings += [dataclasses.replace(setting, environment=name) for setting in each.settings]
        asked = each.options.get("targets") or [{"device": each.outcomes[0].device, "backend": "miopen"}]
        targets += [{**target, "environment": name} for target in asked]
        facts = {"torch.version": Fact(torch or f"2.{len(environments)}", "torch")}
        environments.append(Environment(name, f"/opt/{name}/bin/python", facts))
    return judge(
        dataclasses.replace(
            first, outcomes=tuple(outcomes), settings=tuple(settings), environments=tuple(environments),
            options={**first.options, "targets": targets},
        )
    )  # fmt: skip
