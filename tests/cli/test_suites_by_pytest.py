"""The suites under plain pytest, from a checkout."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from runs import CHECKOUT, PROBLEM, Run, environment, kinds, machine_file, wait_until

from rocmprobe.model.results_file import read_results


def suites(folder: Path, *arguments: object) -> Run:
    command = [
        sys.executable, "-m", "pytest", "suites/", "--rocmprobe-device", "cpu",
        "--rocmprobe-problem", PROBLEM,
        "--rocmprobe-settings", "vendor-off,bypass", "--rocmprobe-out", folder / "out",
        "--junitxml", folder / "items.xml", "-p", "no:cacheprovider",
        "-k", "/convolution/", *arguments,
    ]  # fmt: skip
    done = subprocess.run(
        list(map(str, command)), cwd=CHECKOUT, env=environment(), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    return Run(folder / "out", done)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "distribution",
    [
        pytest.param(("-n", "2"), id="two workers"),
        pytest.param(("-o", "addopts=", "-p", "no:xdist"), id="without xdist", marks=pytest.mark.thorough),
    ],
)
def test_one_item_is_one_outcome(tmp_path: Path, distribution: tuple[str, ...]) -> None:
    done = suites(tmp_path, *distribution)
    assert done.ended.returncode == 0, done.ended.stdout
    items = [case.get("name", "") for case in ElementTree.parse(tmp_path / "items.xml").iter("testcase")]
    assert sorted(item.partition("[")[2].rstrip("]") for item in items) == sorted(done.outcomes)
    assert set(done.states.values()) == {"pass"}
    assert len(done.states) == 9
    assert not done.results.partial
    assert len(done.results.trials) == 3
    assert {"report.html", "junit.xml"} <= {path.name for path in done.folder.iterdir()}
    # One sampler, however many ask: each device is described once, and has all the other lines.
    samples = (done.folder / "samples.jsonl").read_text().splitlines()
    assert sum('"limits"' in line for line in samples) == len(done.results.telemetry) > 0
    assert sum(device.samples for device in done.results.telemetry) == sum('"at"' in line for line in samples)


@pytest.mark.thorough
def test_pytest_html_shows_the_columns_of_an_outcome(tmp_path: Path, chromium: Any) -> None:
    machine = machine_file(tmp_path / "machine.toml", {"library": "miopen", "effect": "raise"})
    done = suites(
        tmp_path, "-n", "1", "--rocmprobe-device", "auto", "--rocmprobe-simulate", machine,
        "--rocmprobe-settings", "default,bypass", "--html", tmp_path / "own.html", "--self-contained-html",
    )  # fmt: skip
    page = chromium.new_page()
    page.goto((tmp_path / "own.html").as_uri())
    header = page.locator("#results-table th").all_inner_texts()
    assert [name.strip() for name in header] == [
        "Result", "State", "Setting", "Failure", "Test", "Duration", "Links",
    ]  # fmt: skip
    cells = [row.inner_text().split("\t") for row in page.locator("#results-table .collapsible").all()]
    found = {test.partition("[")[2][:-1]: shown for _, *shown, test, _, _ in cells}
    assert found == {
        each.id: [each.state, each.setting, each.failure or ""] for each in done.results.outcomes
    }


@pytest.mark.thorough
@pytest.mark.parametrize(("device", "code"), [("gpu", 2), ("cuda:7", 3)])
def test_a_wrong_device_is_one_line_under_pytest_too(tmp_path: Path, device: str, code: int) -> None:
    done = suites(tmp_path, "--rocmprobe-device", device, "-n", "0").ended
    assert done.returncode == code
    assert f"--device {device}" in (done.stdout + done.stderr).replace("'", "")
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.thorough
def test_sigterm_leaves_a_partial_run_under_pytest_too(tmp_path: Path) -> None:
    machine = machine_file(tmp_path / "machine.toml", {"library": "miopen", "effect": "hang"})
    folder = tmp_path / "out"
    stuck = subprocess.Popen(
        [
            sys.executable, "-m", "pytest", "suites/test_convolution.py", "-n", "0",
            "-p", "no:cacheprovider", "--rocmprobe-simulate", str(machine), "--rocmprobe-problem", PROBLEM,
            "--rocmprobe-out", str(folder),
        ],
        cwd=CHECKOUT, env=environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert wait_until(lambda: "intent" in kinds(folder) or stuck.poll() is not None)
    stuck.terminate()
    printed = stuck.communicate(timeout=60)[0]
    assert stuck.returncode == pytest.ExitCode.INTERRUPTED, printed
    assert read_results(folder / "results.json").partial
