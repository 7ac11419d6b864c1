"""Remedies and causes of findings: another PyTorch for missing code, and causes that nothing tested."""

from __future__ import annotations

import dataclasses

import pytest
from synthetic import card, natively, run

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.summary import Summary, summarize
from rocmprobe.model.results import Fact, Finding, Results

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
    machine = card(chip, chip)
    facts = {
        "torch.version": Fact("2.5.1+rocm6.2"), "torch.kind": Fact("rocm"), "python.version": Fact("3.12.3"),
        "os.name": Fact("Ubuntu 24.04"), "kernel.release": Fact("6.8"),
    }  # fmt: skip
    changed = {"[!c]*/elementwise/*": NO_CODE, "[!c]*/convolution/*": NO_CODE, "[!c]*/gemm/*": NO_CODE}
    results = run({**changed, "cpu/*": "pass"})
    return dataclasses.replace(results, machine=dataclasses.replace(machine, facts=facts, variables={}))


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
