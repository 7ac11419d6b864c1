"""What pyproject.toml says to pytest holds where a test goes wrong altogether."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import runs

OPTIONS = Path(__file__).parents[1] / "pyproject.toml"


@pytest.mark.thorough
def test_a_worker_that_dies_fails_its_test_and_no_other(tmp_path):
    (tmp_path / "test_dying.py").write_text(
        "import os, signal, pytest\n"
        "@pytest.mark.parametrize('number', range(9))\n"
        "def test_it(number):\n"
        "    if number == 4:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-m", "pytest", "-c", OPTIONS, "--rootdir", tmp_path, tmp_path]
    ended = subprocess.run(
        command, cwd=tmp_path, env=runs.environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "1 failed, 8 passed" in ended.stdout
    assert "crashed while running" in ended.stdout
