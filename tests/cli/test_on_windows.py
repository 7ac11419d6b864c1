"""Commands on a Python as Windows has it: without fcntl, fork, SIGKILL and the like. Not run on Windows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LOG = "C:\\Users\\jo\\venv\\Lib\\torch\\nn\\conv.py\r\nRuntimeError: miopenStatusUnknownError\r\n"


def answers(commands, folder, **environ):
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder / "site"), "HOME": str(folder), **environ}
    done = subprocess.run(
        [sys.executable, TESTS / "windows_host.py"], input=json.dumps(commands), env=env, cwd=folder,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Every command once, in one process; the results hold paths of Windows."""
    folder = tmp_path_factory.mktemp("windows")
    example = TESTS.parent / "reports" / "examples" / "emulated-gfx1010" / "results.json"
    data = json.loads(example.read_text("utf-8"))
    data["options"]["folder"] = "reports\\20261122T160000Z-rx"
    data["machine"]["facts"]["torch.path"] = {
        "value": "C:\\Python312\\Lib\\site-packages\\torch", "source": "the import system",
    }  # fmt: skip
    data["trials"][0]["log"] = LOG
    (folder / "results.json").write_text(json.dumps(data), "utf-8")
    # As PowerShell's > writes it.
    (folder / "log.txt").write_bytes(LOG.encode("utf-16"))
    torch = folder / "site" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("raise OSError('a DLL is missing')", "utf-8")
    (torch / "version.py").write_text(
        "__version__ = '2.12.0+rocm10.1.0'\nhip = '10.1.0'\ncuda = None\n", "utf-8"
    )
    commands = {
        "explain": ["explain", "log.txt", "--fact", "gpu=RX 5700 XT"],
        "report": ["report", "results.json", "-o", "report.html"],
        "markdown": ["report", "results.json", "--format", "md"],
        "issue": ["report", "results.json", "--format", "issue"],
        "junit": ["report", "results.json", "--format", "junit", "-o", "junit.xml"],
        "compare": ["compare", "results.json", "results.json"],
        "env": ["env", "results.json"],
        "powershell": ["env", "results.json", "--shell", "powershell"],
        "list": ["list", "gpus"],
        "detect": ["detect", "--json"],
        "detect for people": ["detect"],
        "run": ["run", "--device", "cpu"],
        "exec": ["exec", "--profile", "results.json", "--", "python", "train.py"],
        "shapes": ["shapes", "-o", "shapes.json", "--", "python", "train.py"],
        "monitor": ["monitor"],
    }  # fmt: skip
    given = answers(list(commands.values()), folder, HSA_OVERRIDE_GFX_VERSION="10.3.0")
    return folder, dict(zip(commands, given))


@pytest.mark.parametrize(
    "command", ["explain", "report", "markdown", "issue", "junit", "compare", "env", "powershell", "list"]
)
def test_what_needs_no_gpu_works(found, command):
    code, out, err = found[1][command]
    assert code == 0, err
    assert "Traceback" not in out + err


def test_the_report_is_written_with_paths_of_windows(found):
    page = (found[0] / "report.html").read_text("utf-8")
    assert "C:\\Python312\\Lib\\site-packages\\torch" in page
    assert "C:\\Python312\\Lib\\site-packages\\torch" in found[1]["markdown"][1]


def test_a_log_of_powershell_is_explained(found):
    assert "miopenStatusUnknownError" in found[1]["explain"][1]


def test_variables_for_powershell(found):
    assert found[1]["powershell"][1].splitlines() == [
        line.replace("export ", "$env:").replace("=", " = '", 1) + "'"
        for line in found[1]["env"][1].splitlines()
    ]


def test_detect_tells_what_python_alone_knows(found):
    code, out, err = found[1]["detect"]
    machine = json.loads(out)
    assert (code, err, machine["gpus"]) == (3, "", [])
    facts = {name: fact["value"] for name, fact in machine["facts"].items()}
    assert facts["os.name"] == "Windows 11"
    assert (facts["torch.version"], facts["torch.kind"]) == ("2.12.0+rocm10.1.0", "rocm")
    assert machine["variables"]["HSA_OVERRIDE_GFX_VERSION"]["value"] == "10.3.0"
    assert not [name for name in facts if name.startswith("errors.")]
    assert "not detected on Windows" in found[1]["detect for people"][1]


@pytest.mark.parametrize(("command", "expected"), [("run", 3), ("monitor", 3), ("exec", 2), ("shapes", 2)])
def test_what_needs_linux_says_so_in_one_line(found, command, expected):
    code, out, err = found[1][command]
    assert (code, out) == (expected, "")
    assert err.count("\n") == 1
    assert f"`rocmprobe {command}` needs Linux; on Windows, start it in WSL" in err
    assert not (found[0] / "reports").exists()
