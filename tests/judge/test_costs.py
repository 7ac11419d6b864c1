"""Costs of the correct settings, and the headline that names the recommended one."""

from __future__ import annotations

import dataclasses

import pytest
import sample

from rocmprobe.judge.recommendation.costs import costs
from rocmprobe.model.results import Results
from rocmprobe.report.headline import headline


@pytest.fixture(scope="module")
def results() -> Results:
    return sample.rdna1()


def test_costs_name_the_recommended_setting_first(results):
    found = costs(results)
    assert found is not None
    assert found.rows[0].recommended
    assert found.why.startswith(f"{results.recommendation.configuration.setting} instead of ")
    assert all(row.low <= row.time <= row.high for row in found.rows if row.time is not None)


def test_without_a_recommendation_there_are_no_costs(results):
    early = dataclasses.replace(results, recommendation=None)
    assert costs(early) is None


@pytest.mark.parametrize("make", [sample.rdna1, sample.healthy_cpu])
def test_the_headline_has_at_most_twelve_words(make):
    results = make()
    assert 3 <= len(headline(results).split()) <= 12
    for verdict in ("native", "native-with-settings", "vendor-off", "bypass", "cpu", "none", "not-judged"):
        changed = dataclasses.replace(results.recommendation, verdict=verdict)
        words = headline(dataclasses.replace(results, recommendation=changed)).split()
        assert len(words) <= 12
    assert headline(dataclasses.replace(results, recommendation=None)).startswith("No recommendation")
