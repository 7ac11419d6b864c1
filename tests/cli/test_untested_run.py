"""Runs that do not test what a reader expects: every command copes with their verdicts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from runs import Run, cli, rocmprobe, run
from tiers import OLD_TORCH

from rocmprobe.model.results_file import read_results

#: Loaded as Python starts: this machine with an RX 5700 XT in it, and a torch that is built for CUDA.
OTHER_MACHINE = """
import dataclasses
from rocmprobe.model.results import Fact, Gpu
from rocmprobe.engine import run
detect = run.detect
def with_a_card():
    machine = detect()
    isa, name = Fact("gfx1010", "KFD"), Fact("RX 5700 XT", "PCI")
    card = Gpu(isa, isa, name, vendor=Fact("amd", "PCI"))
    facts = {**machine.facts, "torch.kind": Fact("cuda", "torch/version.py")}
    return dataclasses.replace(machine, gpus=(card,), facts=facts)
run.detect = with_a_card
"""
CHECKED = (
    OTHER_MACHINE
    + """
from rocmprobe.engine import check
check.detect_devices = with_a_card
"""
)


@pytest.fixture(scope="module")
def untested(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on a machine whose card the installed torch cannot use."""
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "sitecustomize.py").write_text(OTHER_MACHINE)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return run(folder / "out", "--only", "*/gemm/float32", env={"PYTHONPATH": path})


@pytest.fixture(scope="module")
def partial(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("gemm") / "out", "--device", "cpu", "--only", "gemm")


@pytest.fixture(params=["untested", "partial"])
def either(request: pytest.FixtureRequest) -> Run:
    made: Run = request.getfixturevalue(request.param)
    return made


def test_a_card_that_torch_cannot_use_ends_with_nothing_tested(untested: Run) -> None:
    ended = untested.ended
    assert ended.returncode == 3, ended.stderr
    printed = " ".join(ended.stdout.split())
    assert "Your RX 5700 XT was not tested: this torch is built for CUDA." in printed
    assert "rocmprobe install" in ended.stdout
    assert "Change nothing" not in printed
    page = (untested.folder / "report.html").read_text("utf-8")
    assert '<header class="verdict tone-slow">' in page
    assert "<h1>The GPU was not tested.</h1>" in page
    assert "Your RX 5700 XT was not tested: this torch is built for CUDA." in page


def test_a_run_of_one_check_is_not_judged(partial: Run) -> None:
    assert partial.ended.returncode == 0, partial.ended.stderr
    # An old torch has no float16 on a CPU.
    passed = f"{3 if OLD_TORCH else 4} passed; convolution was not tested."
    assert passed in partial.ended.stdout
    page = (partial.folder / "report.html").read_text("utf-8")
    assert '<header class="verdict tone-unlearned">' in page
    assert "<h1>Too little was tested to recommend a configuration.</h1>" in page
    assert passed in page


def test_a_check_passes_no_cpu_in_place_of_the_card(untested: Run, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CHECKED)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    answer = rocmprobe("check", untested.folder, env={"PYTHONPATH": path})
    assert (answer.returncode, answer.stderr) == (3, "")
    assert answer.stdout.startswith("nothing: no GPU that torch can use")


def test_no_program_runs_under_it(either: Run) -> None:
    results = either.folder / "results.json"
    sentence = read_results(results).recommendation.sentence.rstrip(".")
    refused = cli("exec", "--profile", results, "--", "true")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"rocmprobe: {results}: {sentence}, so nothing was run; ")
    assert refused.stderr.count("\n") == 1
    without = cli("env", results)
    assert (without.returncode, without.stdout) == (1, "")
    assert sentence in without.stderr
    verified = cli("run", "--verify", results, "--out", either.folder / "verified")
    assert verified.returncode == 2
    assert "recommend no configuration" in verified.stderr


def test_it_can_be_compared(either: Run) -> None:
    assert cli("compare", either.folder, either.folder).returncode == 0
