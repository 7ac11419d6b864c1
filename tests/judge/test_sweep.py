"""What is said of solvers that ran alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from synthetic import FP32, diagnose, recommend, run

from rocmprobe.judge.findings.sweep import solver_class, summary
from rocmprobe.model.results import Finding, Outcome, Results, Setting

SOURCE = "MIOpen Error: /MIOpen/src/hipoc/hipoc_program.cpp:304: Code object build failed. Source: a.cpp"
DEFAULT_WRONG = {"default/convolution/*": "wrong"}
CURED = Setting(
    "no-faulty-solvers",
    "found here",
    "native-with-settings",
    env={"MIOPEN_DEBUG_CONV_FFT": "0"},
    derived=True,
)


def alone(solver: str, state: str, *evidence: str, direction: str = "fwd", **fields: Any) -> Outcome:
    name = f"only-{solver}"
    return Outcome(
        f"cuda:0/{name}/solver/{FP32}/{direction}", "cuda:0", name, "solver", "conv", state,
        problem=FP32, direction=direction, evidence=evidence, **fields,
    )  # fmt: skip


def swept(*outcomes: Outcome, results: Results | None = None, cured: str = "") -> Results:
    """A run with these outcomes of the sweep; ``cured``: the state of the derived setting, if it has one."""
    results = results or run(DEFAULT_WRONG)
    if cured:
        convolutions = [each for each in results.outcomes if each.setting == "no-winograd"]
        held = [
            dataclasses.replace(
                each, id=each.id.replace(each.setting, CURED.name), setting=CURED.name, state=cured
            )
            for each in convolutions
        ]
        first, *others = results.settings
        results = dataclasses.replace(
            results, outcomes=(*results.outcomes, *held), settings=(first, CURED, *others)
        )
    return dataclasses.replace(results, outcomes=(*results.outcomes, *outcomes))


def finding(results: Results) -> Finding | None:
    return next((found for found in diagnose(results) if found.id == "faulty-solvers"), None)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (alone("fft", "pass"), "ok"),
        (alone("fft", "slow"), "ok"),
        (alone("fft", "n/a"), "does not apply"),
        (alone("fft", "error", "it failed"), "error"),
        (alone("fft", "error", "it failed", SOURCE), "compile error"),
        (alone("fft", "crash", "SIGABRT", SOURCE), "compile error"),
        (alone("fft", "wrong", SOURCE), "wrong"),
        (alone("fft", "hang"), "hang"),
        (alone("fft", "skipped"), "skipped"),
    ],
)
def test_classes(outcome: Outcome, expected: str) -> None:
    assert solver_class(outcome) == expected


NAMES = ("fft", "GemmFwdRest", "ConvAsm3x3U", "ConvAsm1x1U", "ConvOclDirectFwd", "ConvOclDirectFwdGen")


@pytest.mark.parametrize(
    ("results", "words", "severity"),
    [
        pytest.param(swept(alone("fft", "skipped"), alone("GemmFwdRest", "n/a")), "", None, id="none ran"),
        pytest.param(swept(alone("fft", "pass"), alone("GemmFwdRest", "pass")),
                     "MIOpen's 2 applicable solvers all give correct results alone", None, id="all work"),
        pytest.param(swept(alone("fft", "wrong"), alone("fft", "crash", direction="bwd-data")),
                     "1 of MIOpen's 1 applicable solvers fails: fft crashes", "warning", id="the gravest"),
        pytest.param(swept(*(alone(name, "wrong") for name in NAMES)),
                     "6 of MIOpen's 6 applicable solvers fail: ConvAsm1x1U computes wrong numbers, "
                     "ConvAsm3x3U computes wrong numbers, ConvOclDirectFwd computes wrong numbers, "
                     "ConvOclDirectFwdGen computes wrong numbers and 2 more", "warning", id="many"),
        pytest.param(swept(alone("fft", "wrong"), results=run()),
                     "1 of MIOpen's 1 applicable solvers fails: fft computes wrong numbers", "info",
                     id="default works"),
    ],
)  # fmt: skip
def test_what_the_finding_says(results: Results, words: str, severity: str | None) -> None:
    assert summary(results) == words
    found = finding(results)
    assert (found and found.severity) == severity


@pytest.mark.parametrize(
    ("outcomes", "cause"),
    [
        ((alone("fft", "wrong"),), "wrong-results-solver"),
        ((alone("fft", "crash", "SIGSEGV"),), "miopen-solver-bug"),
        ((alone("fft", "error", "status", SOURCE),), "miopen-kernel-compile-failure"),
    ],
)
def test_cause(outcomes: tuple[Outcome, ...], cause: str) -> None:
    found = finding(swept(*outcomes))
    assert found is not None
    assert (found.cause, found.severity) == (cause, "warning")


@pytest.mark.parametrize(
    ("cured", "advice"),
    [
        ("", "Run with --settings no-faulty-solvers"),
        (
            "pass",
            "MIOPEN_DEBUG_CONV_FFT=0 switches it off. With this setting, every tested convolution is "
            "correct.",
        ),
        ("wrong", "convolution still fails"),
        ("n/a", "was not tested"),
    ],
)
def test_advice(cured: str, advice: str) -> None:
    found = finding(swept(alone("fft", "wrong"), cured=cured))
    assert found is not None
    assert advice in found.advice


def test_what_is_recommended() -> None:
    # Of equals what was found on the machine is recommended.
    found = recommend(swept(alone("fft", "wrong"), cured="pass"))
    assert found is not None
    assert found.configuration.setting == "no-faulty-solvers"
    sentence = "MIOpen gives correct results with its faulty solvers switched off: MIOPEN_DEBUG_CONV_FFT=0."
    assert sentence in found.sentence

    # A forced solver is never recommended.
    forced = Setting("only-fft", "alone", "native-with-settings", solver="fft")
    results = run({"*/convolution/*": "wrong", "*/training-step/*": "blocked"})
    results = swept(alone("fft", "pass"), results=results)
    found = recommend(dataclasses.replace(results, settings=(*results.settings, forced)))
    assert found is not None
    assert found.verdict == "none"
    assert "only-fft" not in {each["setting"] for each in found.alternatives}
