"""Advice that no setting can give, and remedies and causes that nothing tested."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import STATUS, blocked_by_convolution, card, natively, run

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.summary import Summary, summarize
from rocmprobe.model.results import Fact, Finding, Results
from rocmprobe.model.results import Recommendation as Told
from rocmprobe.model.results_file import from_json, to_json

DEAD = {**natively(STATUS), **blocked_by_convolution()}


def advice(results):
    return judge(results).recommendation.advice


def titles(results):
    return [row["title"] for row in advice(results)]


def machine(**facts):
    found = card()
    return dataclasses.replace(
        found, facts={**found.facts, **{name.replace("__", "."): fact for name, fact in facts.items()}}
    )


def test_none_where_convolution_works_as_it_comes():
    assert advice(run()) == ()
    assert advice(run(backend="cudnn")) == ()


def test_each_has_a_text_and_a_source_and_stays_what_it_is_in_a_file():
    found = judge(run(DEAD)).recommendation
    assert found.advice
    assert all(row["title"] and row["text"] and row["source"] for row in found.advice)
    assert from_json(Told, to_json(found)) == found


def test_no_other_build_helps_if_the_user_s_files_are_damaged():
    line = (
        "MIOpen Error: /MIOpen/src/sqlite_db.cpp:220: Internal error while accessing SQLite database: "
        "unable to open database file"
    )
    databases = {"state": "error", "failure": "miopen-status", "evidence": (line,)}
    results = run({**DEAD, **natively(databases)})
    errors = {each.cause for each in judge(results).findings if each.severity == "error"}
    assert "miopen-db-unusable" in errors
    assert titles(results) == []


def test_a_user_without_the_group_joins_it():
    gpu = card().gpus[0]
    found = dataclasses.replace(
        machine(kfd__device=Fact("no permission", "open(/dev/kfd)"), access__groups_needed=Fact(["render"])),
        gpus=(dataclasses.replace(gpu, apu=Fact(False)),),
    )
    results = run(backend="onednn", machine=found)
    (row,) = advice(results)
    assert row["text"] == "Run `sudo usermod -a -G render $USER`, then log in again."
    assert row["source"] == "/dev/kfd: no permission, from open(/dev/kfd)"


def test_a_torch_for_another_kind_of_gpu_is_replaced():
    found = machine(torch__kind=Fact("cpu", "torch/version.py"))
    (row,) = advice(run(backend="onednn", machine=found))
    assert "is a cpu build" in row["title"]
    assert "https://download.pytorch.org/whl/" in row["text"]


def test_the_build_is_that_of_the_card_that_failed():
    second = card("gfx1102", "gfx1102").gpus[0]
    results = run(DEAD, machine=dataclasses.replace(card(), gpus=(second, card().gpus[0])))
    isas = {"native_isa": "gfx1010", "effective_isa": "gfx1030"}
    outcomes = tuple(dataclasses.replace(each, **isas) for each in results.outcomes)
    told = " ".join(titles(dataclasses.replace(results, outcomes=outcomes)))
    assert "gfx1010" in told
    assert "gfx1102" not in told


def test_an_override_that_is_not_needed_comes_before_any_other_build():
    dead = run(DEAD, machine=machine(torch__targets=Fact(["gfx1010"], "libtorch_hip.so")))
    [row] = [each for each in advice(dead) if "override" in each["title"]]
    assert row["title"] == "Remove the override"
    assert "`unset HSA_OVERRIDE_GFX_VERSION`" in row["text"]
    assert row["source"] == "torch.targets: gfx1010, from libtorch_hip.so"
    assert not any("torch[device-" in each["text"] for each in advice(dead))


@pytest.mark.parametrize("torch", ["2.2.0+rocm5.7", "2.2.1+rocm5.7", "2.7.0+rocm6.3"])
def test_the_stack_that_has_just_failed_is_not_recommended(torch: str) -> None:
    gpu = card("gfx1032", "gfx1030").gpus[0]
    found = dataclasses.replace(machine(torch__version=Fact(torch, "torch")), gpus=(gpu,))
    results = run(DEAD, machine=found)
    isas = {"native_isa": "gfx1032", "effective_isa": "gfx1030"}
    outcomes = tuple(dataclasses.replace(each, **isas) for each in results.outcomes)
    told = titles(dataclasses.replace(results, outcomes=outcomes))
    assert any("gfx1032" in title for title in told)
    assert f"PyTorch's wheels for ROCm {torch[-3:]}: gfx1032 as gfx1030" not in told


NO_CODE = {
    "state": "error", "failure": "exception",
    "evidence": ("RuntimeError: HIP error: invalid device function",),
}  # fmt: skip
APERTURE = {
    "state": "crash", "failure": "SIGABRT",
    "evidence": ("HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory beyond",),
}  # fmt: skip


def without_code(chip: str = "gfx1010") -> Results:
    """Results of a card for which the wheel has no code: only copies work."""
    card_of = card(chip, chip)
    facts = {
        "torch.version": Fact("2.5.1+rocm6.2"), "torch.kind": Fact("rocm"), "python.version": Fact("3.12.3"),
        "os.name": Fact("Ubuntu 24.04"), "kernel.release": Fact("6.8"),
    }  # fmt: skip
    changed = {"[!c]*/elementwise/*": NO_CODE, "[!c]*/convolution/*": NO_CODE, "[!c]*/gemm/*": NO_CODE}
    results = run({**changed, "cpu/*": "pass"})
    return dataclasses.replace(results, machine=dataclasses.replace(card_of, facts=facts, variables={}))


def test_missing_code_asks_for_another_pytorch() -> None:
    summary = summarize(judge(without_code()))
    assert summary.headline == "Install another PyTorch: rocmprobe install."
    assert summary.word == "Another PyTorch"
    first, *others = summary.to_copy.all_blocks
    assert first.label.startswith("Install ")
    assert first.body.splitlines()[-1].startswith("pip install ")
    assert all(block.label.startswith("Until then.") for block in others)
    assert next(each.remedy for each in summary.findings if each.severity == "error") == "rocmprobe install"


def test_an_unknown_chip_gets_no_commands() -> None:
    summary = summarize(judge(without_code("gfx9999; rm -rf /")))
    assert "Install" not in summary.headline
    assert not any("pip" in block.body for block in summary.to_copy.all_blocks)


def of(summary: Summary, name: str) -> Finding:
    return next(each for each in summary.findings if each.id == name)


def test_a_cure_of_the_library_blames_the_library() -> None:
    summary = summarize(judge(run({**natively(APERTURE), "no-gemm/convolution/*": "pass"}, wanted="all")))
    found = of(summary, "native-convolution")
    assert (found.cause, found.layer, found.confirm) == ("miopen-solver-bug", "miopen-exec", "")


@pytest.mark.parametrize("tested", [False, True])
def test_an_override_that_nothing_tested_is_a_possible_cause(tested: bool) -> None:
    fails = {"default/convolution/*": APERTURE}
    if not tested:
        fails["no-override/convolution/*"] = APERTURE
    results = run(fails, wanted="default,no-override,vendor-off")
    assert bool(of(summarize(judge(results)), "native-convolution").confirm) != tested
