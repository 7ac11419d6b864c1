"""The networks on the page and on the terminal."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest
import sample
from rich.console import Console

from rocmprobe.model.results import Estimate, Outcome, Results, TrainingTime
from rocmprobe.report.page import html, networks
from rocmprobe.report.terminal.ending import render_run

STEP = (0.02, 0.01, 0.04)


@pytest.fixture(scope="module")
def healthy() -> Results:
    return sample.healthy_cpu()


def trained(setting: str = "default", state: str = "pass", **numerics: Any) -> Outcome:
    told = {
        "losses": [2.3, 1.9, 1.25], "losses_error": 1e-7, "losses_error_limit": 1e-5,
        "images_per_second": 200.0, **numerics,
    }  # fmt: skip
    return Outcome(
        f"cpu/torch/{setting}/train-resnet/float32", "cpu", "torch", setting, "train-resnet", "train", state,
        timings=dict(zip(("step", "step_p10", "step_p90"), STEP)), numerics=told,
    )  # fmt: skip


def time(name: str, own: bool = False) -> TrainingTime:
    return TrainingTime(
        name, "cpu", "default", "float32", "3x32x32", 4, *STEP, 60.0, 30.0, 90.0, 600.0, 300.0, 900.0, own
    )


def with_models(results: Results, *times: TrainingTime) -> Results:
    asked = Estimate(12000, 10, 4, times, ("Loading the data.",))
    return dataclasses.replace(results, outcomes=(trained(),), estimate=asked)


def test_the_section_tells_what_was_trained_and_what_it_takes(healthy: Results) -> None:
    found = networks.models(with_models(healthy, time("resnet")))
    assert found is not None
    assert found.trained.rows[0][4:6] == ("2.3 → 1.25", "1e-07 of 1e-05")
    assert found.trained.rows[0][-2:] == ("20 ms (10 ms to 40 ms)", "200 images/s")
    assert found.times is not None
    assert found.times.rows[0][3:] == (
        "3x32x32", "4", "20 ms (10 ms to 40 ms)", "60 s (30 s to 90 s)",
        "10 min 00 s (5 min 00 s to 15 min 00 s)",
    )  # fmt: skip


def test_the_page_holds_it(healthy: Results) -> None:
    page = html.page(with_models(healthy, time("resnet")))
    assert "Time of 10 epochs of 12000 images in batches of 4" in page
    assert "Loading the data." in page
    assert "2.3 → 1.25" in page
    without = html.page(healthy)
    assert 'id="h-models"' not in without


def test_the_line_of_the_users_own_network_counts(healthy: Results) -> None:
    line = networks.line(with_models(healthy, time("resnet"), time("train.py", own=True)))
    assert "your network" in line
    assert "train.py" in line
    assert "resnet" not in line


def test_it_names_the_batch_that_it_was_computed_with(healthy: Results) -> None:
    """``--estimate`` asks for another than the program was recorded with."""
    results = with_models(healthy, time("your model", own=True))
    assert results.estimate is not None
    asked = dataclasses.replace(results.estimate, batch=8, own_left_out=("Validation.",))
    found = networks.models(dataclasses.replace(results, estimate=asked))
    assert found is not None
    assert "in batches of 4 with your network" in found.answer
    assert found.question == "Time of 10 epochs of 12000 images in batches of 4"
    page = html.page(dataclasses.replace(results, estimate=asked))
    assert page.index("times of your network") < page.index("Validation.") < page.index("Loading the data.")


@pytest.mark.parametrize("losses", [{}, {"a": 1}, "text", 7, [], [None], ["a"], [float("nan")], [10**400]])
def test_losses_that_are_none_do_no_harm(healthy: Results, losses: Any) -> None:
    found = networks.models(dataclasses.replace(healthy, outcomes=(trained(losses=losses),)))
    assert found is not None
    assert found.trained.rows[0][4] in ("", "unknown → unknown")


def test_a_run_without_networks_has_no_section(healthy: Results) -> None:
    assert networks.models(dataclasses.replace(healthy, outcomes=(), estimate=None)) is None
    assert networks.line(dataclasses.replace(healthy, estimate=None)) == ""


def test_the_terminal_has_one_line_of_it(healthy: Results) -> None:
    console = Console(file=io.StringIO(), width=400)
    render_run(with_models(healthy, time("resnet"), time("unet")), {}, console)
    lines = [line for line in console.file.getvalue().splitlines() if line.startswith("Estimate: ")]  # type: ignore[attr-defined]
    assert len(lines) == 1
    assert "10 epochs of 12000 images in batches of 4" in lines[0]
    assert "resnet 10 min 00 s" in lines[0]
    assert "unet 10 min 00 s" in lines[0]
