"""Links to the last runs, and the report in the browser."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import sample
from click.testing import CliRunner
from runs import SMALL, rocmprobe

from rocmprobe import cli
from rocmprobe.cli import run as run_command
from rocmprobe.judge.summary import Summary, summarize
from rocmprobe.model.exit_codes import OK
from rocmprobe.model.results import Configuration, Recommendation, Results
from rocmprobe.model.results_file import write_results

COMPLETE = sample.healthy_cpu()
assert COMPLETE.recommendation is not None
NO_CONFIGURATION: Recommendation = dataclasses.replace(
    COMPLETE.recommendation, verdict="none", configuration=Configuration()
)
#: Runs that programs may not run under, by what they lack.
INCOMPLETE: dict[str, dict[str, Any]] = {
    "simulated": {"simulated": "somewhere"},
    "partial": {"partial": True},
    "only": {"options": {**COMPLETE.options, "only": ["gemm"]}},
    "skip": {"options": {**COMPLETE.options, "skip": ["convolution"]}},
    "no recommendation": {"recommendation": None},
    "no configuration": {"recommendation": NO_CONFIGURATION},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROCMPROBE_EXEC", raising=False)
    return tmp_path


def ends_in(results: Results, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """Begin a run of the CPU that ends in ``results``, and return the name of its folder."""
    folders: list[Path] = []

    def pytest_of(folder: Path, *_: object) -> tuple[int, Summary]:
        write_results(results, folder / "results.json")
        folders.append(folder)
        return OK, summarize(results)

    monkeypatch.setattr(run_command, "_pytest", pytest_of)
    done = CliRunner().invoke(cli.main, ["run", "--device", "cpu", *arguments])
    assert folders, done.output
    return folders[0].name


@pytest.mark.parametrize("what", INCOMPLETE)
def test_recommended_stays_the_last_complete_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    first = ends_in(COMPLETE, monkeypatch, *SMALL)
    second = ends_in(dataclasses.replace(COMPLETE, **INCOMPLETE[what]), monkeypatch, *SMALL)
    assert first != second
    assert os.readlink("reports/latest") == second
    assert os.readlink("reports/recommended") == first
    third = ends_in(COMPLETE, monkeypatch, *SMALL)
    assert os.readlink("reports/latest") == os.readlink("reports/recommended") == third


def test_a_run_in_a_folder_of_its_own_makes_no_links(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_in(COMPLETE, monkeypatch, *SMALL, "--out", "elsewhere/run")
    assert os.listdir("elsewhere") == ["run"]


QUICK = ("--device", "cpu", "--settings", "vendor-off", "--only", "copy", "--quiet")


@pytest.fixture
def browser(tmp_path: Path) -> Path:
    """Return a stub browser that writes its arguments to ``opened``, one a line, next to itself."""
    stub = tmp_path / "browser"
    stub.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> "{tmp_path}/opened"\n')
    stub.chmod(0o755)
    return stub


def test_the_report_opens_once_at_the_end(browser: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    done = rocmprobe("run", *QUICK, "--open", "--out", folder, env={"BROWSER": f"{browser} %s"})
    assert (done.returncode, done.stderr) == (0, "")
    [address] = (tmp_path / "opened").read_text().splitlines()
    assert address == (folder / "report.html").as_uri()


@pytest.mark.thorough
def test_without_a_browser_a_line_says_where_the_report_is(tmp_path: Path) -> None:
    nowhere = {"PATH": str(tmp_path), "BROWSER": "no-such-browser", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    done = rocmprobe("run", *QUICK, "--open", "--out", tmp_path / "run", env=nowhere)
    assert done.returncode == 0
    assert f"--open: found no browser. Open {tmp_path}/run/report.html yourself" in done.stderr
