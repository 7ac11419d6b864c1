"""Failures under the recommended setting that the verdict does not name."""

from __future__ import annotations

from rocmprobe.checks import DIRECT
from rocmprobe.judge.assessment import concerns_convolution, device_of
from rocmprobe.judge.recommendation.limits import words_of
from rocmprobe.knowledge.expectations import observed
from rocmprobe.model.results import Outcome, Results


def failures(results: Results) -> list[Outcome]:
    """Return the failures under the recommended setting, in dtypes for which no other one is recommended."""
    found = results.recommendation
    assert found is not None
    setting = found.configuration.setting
    elsewhere = {
        name.partition("/")[0]
        for name, answer in found.per.items()
        if name.endswith(f"/{results.purpose}") and answer["setting"] != setting
    }
    return [
        each
        for each in map(observed, results.outcomes)
        if (each.setting, each.device) == (setting, device_of(results))
        and each.fails
        and each.dtype not in elsewhere
        and each.check not in DIRECT
        and concerns_convolution(each)
    ]


def unnamed_failures(results: Results) -> list[str]:
    """Return the ids of the failures that neither the limits nor the sentence names."""
    found = results.recommendation
    assert found is not None
    named = [limit for limit in found.limits if limit in found.sentence]
    return [
        each.id
        for each in failures(results)
        if not any(
            limit.startswith(words_of(each)) and ("(" not in limit or each.dtype in limit) for limit in named
        )
    ]
