"""A check and a suite of another package: the example of docs/contributing.md, without an installer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from runs import CHECKOUT, Run, rocmprobe, run

pytestmark = pytest.mark.thorough

CASE = "cpu/{}/my-logcumsumexp/{}"
ONLY = ("--device", "cpu", "--only", "*/my-*")


def package(folder: Path, **changes: str) -> dict[str, str]:
    """Write the example into ``folder`` as an installed package, and return the environment that has it.

    ``changes`` are texts in ``my_checks.py`` and their replacements.
    """
    section = (CHECKOUT / "docs/contributing.md").read_text("utf-8").partition("## An own check\n")[2]
    blocks = re.findall(r"```\w+\n# (\S+)\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    files = dict(blocks)
    assert set(files) == {"my_checks.py", "pyproject.toml", "my_suite.py"}
    for old, new in changes.items():
        assert old in files["my_checks.py"]
        files["my_checks.py"] = files["my_checks.py"].replace(old, new)
    entry = re.search(r'^my-checks = "(.*)"$', files["pyproject.toml"], re.MULTILINE)
    assert entry
    installed = folder / "my_checks-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-checks\nVersion: 1\n", "utf-8")
    (installed / "entry_points.txt").write_text(f"[rocmprobe.checks]\nmy-checks = {entry[1]}\n", "utf-8")
    for name in ("my_checks.py", "my_suite.py"):
        (folder / name).write_text(files[name], "utf-8")
    return {"PYTHONPATH": str(folder)}


def finding(made: Run) -> list[tuple[str, str]]:
    return [(each.title, each.advice) for each in made.results.findings if each.id == "my-logcumsumexp"]


def test_the_outcome_and_the_finding_of_an_own_check_are_in_the_results(tmp_path: Path) -> None:
    env = package(tmp_path / "own")
    suite = tmp_path / "own" / "my_suite.py"
    made = run(tmp_path / "out", *ONLY, "--suite", suite, env=env)
    assert made.ended.returncode == 0, made.ended.stderr
    cases = {
        CASE.format(setting, dtype)
        for setting in ("default", "vendor-off")
        for dtype in ("float32", "float64")
    }
    assert made.states == dict.fromkeys(cases, "pass")
    assert finding(made) == []

    right = "torch.logcumsumexp(values, dim=1)"
    wrong = {right: f"{right} * (1 + (values.dtype == torch.float32))"}
    made = run(tmp_path / "wrong", *ONLY, "--suite", suite, env=package(tmp_path / "faulty", **wrong))
    assert made.states[CASE.format("default", "float32")] == "wrong"
    assert made.states[CASE.format("default", "float64")] == "pass"
    assert finding(made) == [
        ("logcumsumexp computes wrong numbers in float32", "Run logcumsumexp on the CPU.")
    ]
    assert "logcumsumexp computes wrong numbers in float32" in (tmp_path / "wrong" / "report.html").read_text(
        "utf-8"
    )


def test_a_check_is_listed_and_selected_by_its_name(tmp_path: Path) -> None:
    env = package(tmp_path)
    listed = rocmprobe("list", "checks", env=env)
    assert "my-logcumsumexp" in listed.stdout
    # A suite that requests a check of rocmprobe, too, does not run its cases twice.
    suite = tmp_path / "my_suite.py"
    suite.write_text(
        suite.read_text("utf-8").replace("REQUESTS = [", 'REQUESTS = [\n    Request("copy"),'), "utf-8"
    )
    only = ("--device", "cpu", "--only", "my-logcumsumexp", "--only", "*/copy/float32")
    made = run(tmp_path / "out", *only, "--suite", suite, env=env)
    assert len(made.states) == 5
    assert set(made.states.values()) == {"pass"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"my-logcumsumexp"', '"copy"', "check 'copy': another check has this name"),
        ('rung="primitives"', 'rung="top"', "the rung 'top' is none of copy, "),
        ("=KERNELS", "=KERNELS.__class__(('nothing',))", "it requires 'nothing', which is not a check"),
        ("from functools import partial", "import my_other_module", "No module named 'my_other_module'"),
        ("CHECKS = (", "import torch\n\nCHECKS = (", "imports torch"),
    ],
)  # fmt: skip
def test_a_check_that_cannot_be_used_is_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    ended = rocmprobe("list", "checks", env=package(tmp_path, **{old: new}))
    assert ended.returncode == 2
    assert ended.stderr.startswith("rocmprobe: entry point my-checks = my_checks (rocmprobe.checks): ")
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"my-logcumsumexp"', '"my-cumsum"', "line 6: no check has the name 'my-cumsum'; did you mean my"),
        ("import pytest", "import my_module", "line 1: ModuleNotFoundError: No module named 'my_module'"),
        ("def test_machine", "def ", "line 11: SyntaxError: "),
        ("checks(REQUESTS)", "checks(*REQUESTS)", "the suite cannot be used: TypeError"),
    ],
)  # fmt: skip
def test_a_suite_that_cannot_be_used_is_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    env = package(tmp_path)
    suite = tmp_path / "my_suite.py"
    suite.write_text(suite.read_text("utf-8").replace(old, new), "utf-8")
    ended = run(tmp_path / "out", *ONLY, "--suite", suite, "-q", env=env).ended
    assert ended.returncode == 2
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_missing_suite_is_one_line(tmp_path: Path) -> None:
    ended = run(tmp_path / "out", "--suite", tmp_path / "none.py").ended
    assert (ended.returncode, ended.stderr) == (
        2,
        f"rocmprobe: --suite: {tmp_path / 'none.py'} is not a file\n",
    )
