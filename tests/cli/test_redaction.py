"""User, home, host, addresses and tokens stay at home."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest
from runs import CHECKOUT, Run, environment, machine_file, rocmprobe, run

WRITTEN = ("results.json", "journal.jsonl", "report.html", "junit.xml")
ENV = {
    "HOME": "/home/plantedname",
    "USER": "plantedname",
    "LOGNAME": "plantedname",
    "HOSTNAME": "plantedhost",
}
TOKEN = "hf_" + "abCD1234" * 4
#: What must not show, and where it may stand in a log or in a fact.
PLANTED = (
    "plantedname", "plantedhost", "192.168.77.7", "2001:db8::77", "aa:bb:cc:dd:ee:77", "95a1ca7691e7c377",
    "2e992352-6f78-4f9b-aa68-1b771d43e277", "692024000877", "someone@planted.example.org", TOKEN,
)  # fmt: skip
SAID = (
    "/home/plantedname/.cache/miopen of plantedname on plantedhost.lan (192.168.77.7, 2001:db8::77, "
    "aa:bb:cc:dd:ee:77) GPU-95a1ca7691e7c377 UUID=2e992352-6f78-4f9b-aa68-1b771d43e277 "
    f"Serial Number: 692024000877 someone@planted.example.org {TOKEN}"
)
KINDS = {"user", "host", "home", "ip", "mac", "uuid", "serial", "email", "token"}


def talkative(folder: Path, *arguments: str) -> Run:
    """A run whose torch says all that was planted, whatever it is asked."""
    package = folder / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(f"print({SAID!r})\nraise OSError({SAID!r})")
    (package / "version.py").write_text("__version__ = '2.4.0'\ncuda = None\nhip = None\n")
    env = {**ENV, "PYTHONPATH": f"{folder}{os.pathsep}{CHECKOUT}", "MIOPEN_USER_DB_PATH": SAID}
    return run(folder / "out", "--device", "cpu", "--only", "*/copy/float32", *arguments, env=env)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return talkative(tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return talkative(tmp_path_factory.mktemp("kept"), "--no-redact")


@pytest.mark.parametrize("name", WRITTEN)
def test_planted_identifiers_are_nowhere_in_what_a_run_writes(clean: Run, name: str) -> None:
    written = (clean.folder / name).read_text("utf-8")
    assert [planted for planted in PLANTED if planted in written] == []


def test_a_run_says_what_was_redacted(clean: Run) -> None:
    (outcome,) = clean.outcomes.values()
    assert outcome.evidence[0].startswith(
        "import torch: OSError: <home>/.cache/miopen of <user> on <host> (<ip-"
    )
    assert set(clean.results.redacted) == KINDS
    assert "Redacted in these results: user (" in (clean.folder / "report.html").read_text("utf-8")


def test_one_identifier_has_one_placeholder_in_facts_and_logs(clean: Run) -> None:
    (outcome,) = clean.outcomes.values()
    assert clean.results.machine.variables["MIOPEN_USER_DB_PATH"].value in outcome.evidence[0]


@pytest.mark.thorough
@pytest.mark.parametrize("name", WRITTEN)
def test_no_redact_keeps_them(kept: Run, name: str) -> None:
    assert "/home/plantedname/.cache/miopen" in (kept.folder / name).read_text("utf-8")
    assert kept.results.redacted == {}


def test_the_terminal_of_detect_shows_none(tmp_path: Path) -> None:
    env = {**ENV, "MIOPEN_USER_DB_PATH": SAID, "HIP_VISIBLE_DEVICES": "GPU-95a1ca7691e7c377"}
    for arguments in (["detect"], ["detect", "--json"]):
        shown = rocmprobe(*arguments, env={**env, "COLUMNS": "900"}).stdout
        assert "MIOPEN_USER_DB_PATH" in shown
        assert [planted for planted in PLANTED if planted in shown] == []
    assert set(json.loads(shown)["redacted"]) >= KINDS
    raw = json.loads(rocmprobe("detect", "--json", "--no-redact", env=env).stdout)
    assert raw["variables"]["MIOPEN_USER_DB_PATH"]["value"] == SAID
    assert raw["redacted"] == {}


@pytest.mark.thorough
def test_a_simulated_machine_under_home_is_found_again(tmp_path: Path) -> None:
    home = tmp_path / "plantedname"
    home.mkdir()
    machine = machine_file(home / "machine.toml")
    with machine.open("a", encoding="utf-8") as stream:
        stream.write(f'[variables]\nMIOPEN_USER_DB_PATH = "{SAID}"\n')
    env = {**ENV, "HOME": str(home)}
    only = ("--only", "convolution", "--settings", "default", "--problem", "conv2d-fp32-n1-c4-i8x8-k4-f3x3")
    done = run(home / "out", "--simulate", machine, *only, env=env)
    for name in WRITTEN:
        written = (done.folder / name).read_text("utf-8")
        assert [planted for planted in PLANTED if planted in written] == [], name
    assert done.results.options["simulate"] == "<home>/machine.toml"
    again = rocmprobe("run", "--verify", done.folder / "results.json", "--out", home / "again", env=env)
    assert again.returncode == 0, again.stderr


@pytest.mark.thorough
def test_what_pytest_and_its_plugins_write_by_themselves(tmp_path: Path) -> None:
    """JUnit names the host, xdist the interpreter, pytest-metadata what the CI server says."""
    home = tmp_path / "plantedname"
    home.mkdir()
    python = home / "python"
    python.symlink_to(sys.executable)
    machine = machine_file(home / "machine.toml", {"library": "hip", "effect": "raise", "message": SAID})
    env = {
        **ENV, "HOME": str(home), "JENKINS_URL": "http://192.168.77.7/", "WORKSPACE": f"{home}/work",
        "PYTHONPATH": os.pathsep.join([str(CHECKOUT), *site.getsitepackages()]),
    }  # fmt: skip
    command = [
        str(python), "-m", "pytest", "-c", os.devnull, "--rootdir", str(CHECKOUT), "-p", "no:cacheprovider",
        "-p", "rocmprobe.pytest_plugin", str(CHECKOUT / "suites" / "test_ladder.py"),
        "-k", "copy and float32", "-n", "1",
        "--rocmprobe-simulate", str(machine), "--rocmprobe-out", str(home / "out"),
        "--junit-xml", str(home / "own.xml"), "--html", str(home / "own.html"), "--self-contained-html",
    ]  # fmt: skip
    ended = subprocess.run(
        command, cwd=home, env=environment(env), capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    for path in (home / "own.xml", home / "own.html", *(home / "out" / name for name in WRITTEN)):
        written = path.read_text("utf-8")
        assert [planted for planted in PLANTED if planted in written] == [], path.name
    assert 'hostname="&lt;host&gt;"' in (home / "own.xml").read_text("utf-8")
    page = (home / "own.html").read_text("utf-8")
    assert "&amp;lt;home&amp;gt;/python" in page
    assert "&amp;lt;home&amp;gt;/work" in page
