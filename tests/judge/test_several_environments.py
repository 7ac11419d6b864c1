"""A joined run of several environments: which is recommended, and what is said of the others."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from rows import every_row
from several_environments import runs, together, unjudged, written
from synthetic import STATUS, blocked_by_convolution, card, natively, run

from rocmprobe.judge.members import choose
from rocmprobe.model.results import BadInput, Fact, JoinedRun, Member
from rocmprobe.model.results_file import from_json, read_joined, read_results, results_document
from rocmprobe.report.joined import markdown, page, side_by_side

DEAD = {**natively(STATUS), **blocked_by_convolution()}


def every(low: float, middle: float, high: float) -> dict[str, tuple[float, float, float]]:
    """The same times for every setting."""
    return dict.fromkeys((setting.name for setting in run().settings), (low, middle, high))


def chosen(joined: JoinedRun) -> tuple[str, str]:
    """The name and the setting of the recommended environment."""
    return next(
        ((each.name, each.setting) for each in joined.members if each.name == joined.chosen), ("", "")
    )


def test_which_environment_is_recommended() -> None:
    # The faster one is recommended with what the other takes.
    joined = together(slow=run(seconds=every(1.9, 2.0, 2.1)), fast=run())
    assert chosen(joined) == ("fast", "default")
    assert joined.sentence == "Use the environment fast (torch 2.1)."
    assert "time is 0.50x of the environment slow with default" in joined.cost
    assert [each.seconds for each in joined.members] == [2.0, 1.0]

    # Of two that are level the smaller change is recommended.
    joined = together(bypassed=run(DEAD), native=run())
    assert chosen(joined) == ("native", "default")
    assert "the same as the environment bypassed with" in joined.cost
    assert chosen(together(first=run(), second=run())) == ("first", "default")

    # A torch without GPUs comes after one that has them.
    fast_cpu = run(backend="onednn", seconds=every(0.1, 0.1, 0.1))
    assert chosen(together(cpu=fast_cpu, card=run()))[0] == "card"
    assert chosen(together(cpu=fast_cpu, card=run({"*": "error"})))[0] == "cpu"

    # An environment on the CPU is called that beside one on a card.
    joined = together(card=run(), cpu=run(backend="onednn", seconds=every(0.1, 0.1, 0.1)))
    assert "10.00x of the environment cpu with default on the CPU" in joined.cost
    assert "| cpu | cpu | Native |" in markdown(joined)
    assert "| card (recommended) | `cuda:0` | Native |" in markdown(joined)
    assert joined.sentence == "Use the environment card (torch 2.0)."
    fallen_back = together(broken=run({"*": "error"}), cpu=run(backend="onednn"))
    assert fallen_back.sentence == "Use the environment cpu (torch 2.1) on the CPU."
    moved = together(card=run(), broken=run({"*/cuda:0/*": "error"}))
    assert "device" not in side_by_side(moved).header


def test_where_none_is_right_or_one_was_not_run() -> None:
    # No environment is recommended that cannot use the card.
    facts = {"torch.kind": Fact("cuda", "torch/version.py")}
    on_cpu = run(backend="onednn", machine=dataclasses.replace(card(), facts=facts))
    on_cpu = dataclasses.replace(on_cpu, options={**on_cpu.options, "device": "auto"})
    broken = run({"*": "error"})
    broken = dataclasses.replace(broken, options={**broken.options, "device": "auto"})
    joined = together(card=broken, cpu=on_cpu)
    assert chosen(joined) == ("", "")
    assert joined.sentence == "No environment has a safe configuration."
    assert "| cpu | cpu | GPU not tested |" in markdown(joined)
    alone = together(one=on_cpu, two=on_cpu)
    assert alone.sentence == "No environment was tested."
    assert {each.verdict for each in alone.members} == {"gpu-not-tested"}

    # Where nothing is right none is chosen and each has its verdict.
    joined = together(one=run({"*": "error"}), two=run({"*": "error"}))
    assert chosen(joined) == ("", "")
    assert joined.sentence == "No environment has a safe configuration."
    assert [each.verdict for each in joined.members] == ["none", "none"]

    # An environment that was not run costs the others nothing.
    begun = unjudged("one", "gone", "later")
    one, gone, later = begun.members
    begun = dataclasses.replace(
        begun, members=(one, dataclasses.replace(gone, unusable="there is no such file"), later)
    )
    joined = choose(begun, runs(one=run()))
    assert (joined.chosen, joined.partial) == ("one", True)
    assert "the environment gone cannot be tested" in joined.cost
    assert "| gone | Not tested |" in markdown(joined)
    assert "| later | No result |" in markdown(joined)


def test_the_file_comes_back_the_same() -> None:
    joined = together(dead=run(DEAD), right=run())
    assert from_json(JoinedRun, json.loads(results_document(joined))) == joined


def test_results_of_a_joined_run_are_those_of_the_chosen_member(tmp_path: Path) -> None:
    path = written(tmp_path, dead=run({"*": "error"}), right=run())
    assert read_results(path) == read_results(tmp_path / "right" / "results.json")
    assert read_results(path, member="dead") == read_results(tmp_path / "dead" / "results.json")
    with pytest.raises(BadInput, match=r"has no run of 'gone'; name one of them: .*/dead, .*/right$"):
        read_results(path, member="gone")


def test_a_joined_run_that_recommends_none_names_its_runs(tmp_path: Path) -> None:
    path = written(tmp_path, one=run({"*": "error"}), two=run({"*": "error"}))
    with pytest.raises(BadInput, match=r"recommends none of its runs; name one of them: .*/one, .*/two$"):
        read_results(path)


@every_row("name", ["../elsewhere", "/etc", "", "a b"])
def test_a_name_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, one=run(), two=run())
    path.write_text(path.read_text().replace('"one"', json.dumps(name)))
    with pytest.raises(BadInput, match="is not a valid name of an environment; the file is damaged"):
        read_joined(path)


def test_the_page_leads_to_each_report_and_escapes_what_it_shows() -> None:
    joined = together(dead=run(DEAD), right=run())
    noted = Member("gone", "/opt/gone", unusable="<b>no</b>", note="<b>no</b>")
    shown = page(dataclasses.replace(joined, members=(*joined.members, noted)))
    assert 'href="dead/report.html"' in shown
    assert 'href="right/report.html"' in shown
    assert "gone/report.html" not in shown
    assert "&lt;b&gt;no" in shown
    assert "<b>" not in shown
