"""A run over several devices: one recommendation for each, and the main one about the card."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console
from synthetic import STATUS, natively, recommend, run

from rocmprobe.judge.summary import summarize
from rocmprobe.model.results import Fact
from rocmprobe.model.results import Recommendation as Recommended
from rocmprobe.model.results_file import from_json, read_results, to_json, write_results
from rocmprobe.report.page.html import page
from rocmprobe.report.terminal.ending import render_run
from rocmprobe.report.terminal.markdown import markdown


def on(results, device):
    return tuple(
        dataclasses.replace(each, device=device, id=each.id.replace("cuda:0", device, 1))
        for each in results.outcomes
    )


@pytest.fixture(scope="module")
def two():
    """cuda:0 sits in the processor and works; on the card, cuda:1, convolution fails in the library."""
    right, broken = run(), run(natively(STATUS))
    card = right.machine.gpus[0]
    integrated = dataclasses.replace(
        card, name=Fact("Raphael"), apu=Fact(True), order=Fact(0), index=Fact(0), address=Fact("0000:10:00.0")
    )
    card = dataclasses.replace(card, order=Fact(1), index=Fact(1), address=Fact("0000:03:00.0"))
    targets = [
        {"device": "cuda:0", "backend": "miopen", "gpu": "Raphael", "in_processor": True},
        {"device": "cuda:1", "backend": "miopen", "gpu": "AMD Radeon RX 5600 XT", "in_processor": False},
    ]
    return dataclasses.replace(
        right,
        # As the workers of a run write them: neither first.
        outcomes=tuple(each for pair in zip(on(right, "cuda:0"), on(broken, "cuda:1")) for each in pair),
        machine=dataclasses.replace(right.machine, gpus=(card, integrated)),
        options={**right.options, "targets": targets},
    )


def test_each_device_has_its_answer_and_the_card_comes_first(two):
    found = recommend(two)
    assert list(found.devices) == ["cuda:1", "cuda:0"]
    card, integrated = found.devices.values()
    assert (integrated.verdict, integrated.setting, integrated.in_processor) == ("native", "default", True)
    assert card.verdict == found.verdict != "native"
    assert card.setting == found.configuration.setting
    assert (card.mask, integrated.mask) == ("HIP_VISIBLE_DEVICES=1", "HIP_VISIBLE_DEVICES=0")
    assert "cuda:0: the recommendation is about cuda:1" in found.not_covered


def test_the_configuration_leaves_a_program_the_card_that_the_run_chose(two):
    assert recommend(two).configuration.env.get("HIP_VISIBLE_DEVICES") is None
    chosen = dataclasses.replace(two, options={**two.options, "device": "auto"})
    assert recommend(chosen).configuration.env["HIP_VISIBLE_DEVICES"] == "1"
    # HIP counts anew in a list; a list by UUID is left alone, and so is a simulated machine.
    for value, expected in (("2,5", "5"), ("", "1"), ("GPU-4904ba80f4e6b186,1", None)):
        machine = dataclasses.replace(
            two.machine, variables={**two.machine.variables, "HIP_VISIBLE_DEVICES": Fact(value)}
        )
        listed = dataclasses.replace(chosen, machine=machine)
        assert recommend(listed).configuration.env.get("HIP_VISIBLE_DEVICES") == expected
    simulated = dataclasses.replace(chosen, simulated="two GPUs")
    assert "HIP_VISIBLE_DEVICES" not in recommend(simulated).configuration.env


def test_a_card_that_works_as_it_comes_is_chosen_by_a_variable_all_the_same(two):
    right = dataclasses.replace(two, outcomes=on(run(), "cuda:1"), options={**two.options, "device": "auto"})
    assert (
        "Set HIP_VISIBLE_DEVICES=1, so that programs use the GPU that was tested" in recommend(right).sentence
    )


def test_the_order_of_the_outcomes_does_not_matter(two):
    turned = dataclasses.replace(two, outcomes=tuple(reversed(two.outcomes)))
    assert {name: answer.verdict for name, answer in recommend(turned).devices.items()} == {
        name: answer.verdict for name, answer in recommend(two).devices.items()
    }
    assert recommend(turned).configuration == recommend(two).configuration


def test_one_device_has_no_list():
    assert recommend(run()).devices == {}

    # Results of before are read.
    data = to_json(recommend(run()))
    del data["devices"]
    assert from_json(Recommended, data).devices == {}


def test_it_is_written_read_and_shown(two, tmp_path):
    results = dataclasses.replace(two, recommendation=recommend(two))
    write_results(results, tmp_path / "results.json")
    again = read_results(tmp_path / "results.json")
    assert again.recommendation.devices == results.recommendation.devices
    shown = io.StringIO()
    render_run(summarize(again), {}, Console(file=shown, width=300))
    assert "cuda:0 (Raphael, in the processor): Native convolution works" in shown.getvalue()
    assert "To use only this GPU: HIP_VISIBLE_DEVICES=1" in shown.getvalue()
    text = markdown(summarize(again))
    assert "## For each device" in text
    assert "Recommendation by device</h2>" in page(summarize(again))
