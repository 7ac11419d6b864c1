"""``rocmprobe run --open`` hands the report to the user's browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import rocmprobe

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
