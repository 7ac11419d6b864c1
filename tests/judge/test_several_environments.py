"""Several environments in one run: which is recommended, and what is said of the others."""

from __future__ import annotations

import dataclasses
import json
import re

from several_environments import together
from synthetic import STATUS, blocked_by_convolution, card, natively, run

from rocmprobe.judge.comparison.compare import compare
from rocmprobe.judge.judgement import judge
from rocmprobe.model.results import Environment, Fact, Results, from_json, results_document
from rocmprobe.report.environments import environment_rows
from rocmprobe.report.issue.issue import issue_block
from rocmprobe.report.page import html
from rocmprobe.report.terminal.comparison import markdown as compared_as_markdown
from rocmprobe.report.terminal.markdown import markdown
from rocmprobe.text.reading import check

DEAD = {**natively(STATUS), **blocked_by_convolution()}


def every(low: float, middle: float, high: float) -> dict[str, tuple[float, float, float]]:
    """The same times for every setting."""
    return dict.fromkeys((setting.name for setting in run().settings), (low, middle, high))


def chosen(results: Results) -> tuple[str, str | None]:
    assert results.recommendation
    found = results.recommendation.configuration
    return found.environment, found.setting


def test_the_faster_one_is_recommended_with_what_the_other_takes() -> None:
    results = together(slow=run(seconds=every(1.9, 2.0, 2.1)), fast=run())
    assert chosen(results) == ("fast", "default")
    assert results.recommendation
    assert results.recommendation.sentence.startswith("Use the environment fast (torch 2.1). Native")
    assert "0.50 times that of the environment slow under default" in results.recommendation.cost
    slow, fast = results.environments
    assert (slow.seconds, fast.seconds) == (2.0, 1.0)


def test_of_two_that_are_level_the_smaller_change_is_recommended() -> None:
    results = together(bypassed=run(DEAD), native=run())
    assert chosen(results) == ("native", "default")
    assert results.recommendation
    assert "level with that of the environment bypassed under" in results.recommendation.cost
    assert chosen(together(first=run(), second=run())) == ("first", "default")


def test_a_torch_without_gpus_comes_after_one_that_has_them() -> None:
    fast_cpu = run(backend="onednn", seconds=every(0.1, 0.1, 0.1))
    assert chosen(together(cpu=fast_cpu, card=run()))[0] == "card"
    assert chosen(together(cpu=fast_cpu, card=run({"*": "error"})))[0] == "cpu"


def test_an_environment_on_the_cpu_is_called_that_beside_one_on_a_card() -> None:
    results = together(card=run(), cpu=run(backend="onednn", seconds=every(0.1, 0.1, 0.1)))
    assert results.recommendation
    assert "10.00 times that of the environment cpu under default on the CPU" in results.recommendation.cost
    assert "| cpu | cpu | Native |" in markdown(results)
    assert "| card (recommended) | `cuda:0` | Native |" in markdown(results)
    assert results.recommendation.sentence.startswith("Use the environment card (torch 2.0). ")
    fallen_back = together(broken=run({"*": "error"}), cpu=run(backend="onednn"))
    assert fallen_back.recommendation
    assert fallen_back.recommendation.sentence.startswith("Use the environment cpu (torch 2.1) on the CPU. ")
    moved = together(card=run(), broken=run({"*/cuda:0/*": "error"}))
    assert [row.device for row in environment_rows(moved)] == ["", ""]


def test_no_environment_is_recommended_that_cannot_use_the_card() -> None:
    facts = {"torch.kind": Fact("cuda", "torch/version.py")}
    on_cpu = run(backend="onednn", machine=dataclasses.replace(card(), facts=facts))
    on_cpu = dataclasses.replace(on_cpu, options={**on_cpu.options, "device": "auto"})
    broken = run({"*": "error"})
    broken = dataclasses.replace(broken, options={**broken.options, "device": "auto"})
    results = together(card=broken, cpu=on_cpu)
    assert results.recommendation
    assert (results.recommendation.verdict, chosen(results)) == ("none", ("", None))
    assert "| cpu | cpu | GPU not tested |" in markdown(results)
    alone = together(one=on_cpu, two=on_cpu)
    assert alone.recommendation
    assert alone.recommendation.verdict == "gpu-not-tested"
    assert alone.recommendation.sentence.startswith("one: Your AMD Radeon RX 5600 XT was not tested: this ")


def test_a_torch_without_the_device_that_is_tested_is_told_how_to_get_one() -> None:
    one = together(card=run())
    without = Environment(
        "cpu", "/opt/cpu/bin/python",
        {"torch.version": Fact("2.4.0+cpu", "torch"), "torch.kind": Fact("cpu", "torch")},
        "--device cuda:0: torch 2.4.0+cpu (cpu build) and this machine have 0 matching GPU(s)",
    )  # fmt: skip
    nothing = Environment("gone", "/opt/gone", {}, "there is no such file")
    found = {
        each.environment: each
        for each in judge(
            dataclasses.replace(one, environments=(*one.environments, without, nothing))
        ).findings
    }
    assert found["cpu"].cause == "wrong-torch-build"
    assert "--device auto" in found["cpu"].advice
    assert "rocmprobe install" in found["cpu"].advice
    assert found["gone"].advice == "Name an interpreter that has torch, or leave this one out."


def test_a_comparison_says_that_another_environment_is_recommended() -> None:
    old = together(one=run(), two=run({"*": "error"}))
    new = together(one=run({"*": "error"}), two=run())
    printed = compared_as_markdown(compare(old, new, "old.json", "new.json"))
    assert "(default) in the environment one, now Native (default) in the environment two" in printed


def test_a_comparison_says_in_which_environment_times_are_too_noisy() -> None:
    old, new = (together(one=run(seconds=every(*times)), two=run(seconds=every(*times)))
                for times in ((0.9, 1.0, 1.1), (0.8, 2.0, 4.0)))  # fmt: skip
    printed = compared_as_markdown(compare(old, new, "old.json", "new.json"))
    assert re.search(r"Too noisy to tell.*one:cuda:0 default fwd 2\.00", printed)


def test_where_nothing_is_right_the_sentence_names_each() -> None:
    results = together(one=run({"*": "error"}), two=run({"*": "error"}))
    assert chosen(results) == ("", None)
    assert results.recommendation
    assert results.recommendation.sentence.startswith("No environment has a safe configuration. one: ")
    assert "; two: " in results.recommendation.sentence


def test_each_has_its_own_findings_and_the_machine_those_that_all_share() -> None:
    alone = {finding.id for finding in judge(run(DEAD)).findings}
    results = together(dead=run(DEAD), right=run())
    of_machine = {finding.id for finding in results.findings if not finding.environment}
    of_dead = {finding.id for finding in results.findings if finding.environment == "dead"}
    assert of_machine | of_dead == alone
    assert of_dead
    alike = together(torch="2.4", one=run(), two=run()).findings
    assert {finding.environment for finding in alike} == {""}
    assert {finding.id for finding in alike} == {finding.id for finding in judge(run()).findings}
    dead, _ = results.environments
    assert {finding.id for finding in results.of(dead).findings} == alone


def test_the_file_follows_the_schema_and_comes_back_the_same() -> None:
    results = together(dead=run(DEAD), right=run())
    data = json.loads(results_document(results))
    check(data, "results", "results.json", "")
    assert from_json(Results, data) == results
    assert "environments" not in json.loads(results_document(run()))
    assert not [row for row in json.loads(results_document(run()))["outcomes"] if "environment" in row]


def test_every_text_tells_the_environments_apart() -> None:
    results = together(dead=run(DEAD), right=run())
    assert [(row.name, row.torch, row.recommended) for row in environment_rows(results)] == [
        ("dead", "2.0", False), ("right", "2.1", True)
    ]  # fmt: skip
    text = markdown(results)
    assert "| right (recommended) | Native | default | 1 s | 2.1 |" in text
    assert text.index("### Device `right:cuda:0`") < text.index("### Device `dead:cuda:0`")
    # The failure is that of the first one's torch.
    assert "2.0" in issue_block(results, "pytorch")
    page = html.page(results)
    assert page.count('aria-label="Device ') == 2
    assert "dead: " in page


def test_a_comparison_holds_each_against_itself() -> None:
    before = together(a=run(), b=run())
    after = together(a=run(), b=run(DEAD))
    found = compare(before, after, "old", "new")
    assert {change.id.partition(":")[0] for change in found.changed} == {"b"}
    assert found.compared == len(before.outcomes)
