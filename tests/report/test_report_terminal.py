"""The terminal, and GitHub: workflow commands and the summary of a job."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path

import pytest
import sample
from hypothesis import given, settings
from hypothesis import strategies as st
from rendering import Rendered
from rich.console import Console
from rich.text import Text
from tiers import examples

from rocmprobe.cli.github_job import annotate, no_commands
from rocmprobe.judge.findings.machine import machine_findings
from rocmprobe.judge.summary import summarize
from rocmprobe.model.changes import Change, Changes
from rocmprobe.model.results import Finding, Machine, Results
from rocmprobe.model.results_file import from_json, read_results
from rocmprobe.report.terminal import ending as terminal
from rocmprobe.report.terminal import machine_summary
from rocmprobe.report.terminal.github import MOST, job_summary, workflow_commands
from rocmprobe.report.terminal.lines import wrapped
from rocmprobe.report.terminal.markdown import markdown
from rocmprobe.text.console import Console as OwnConsole


def run_text(results: Results, width: int = 200) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=False)
    terminal.render_run(summarize(results), {"report": Path("reports/one/report.html")}, console)
    return out.getvalue()


def machine_text(machine: Machine) -> str:
    out = io.StringIO()
    machine_summary.render_machine(
        machine, machine_findings(machine), Console(file=out, width=200, force_terminal=False)
    )
    return out.getvalue()


def test_run_tells_verdict_block_findings_counts_and_paths() -> None:
    text = run_text(sample.rdna1())
    for part in (
        "SIMULATED", "Verdict: Bypass.", "\n  export HSA_OVERRIDE_GFX_VERSION=10.3.0\n",
        "rocmprobe.bypass.install()\n", "For float16, without changing the program:\n",
        "\n  rocmprobe exec --simulated --profile results.json -- python train.py\n",
        "\n  rocmprobe exec --simulated --profile results.json --setting vendor-off -- python train.py\n",
        "✕ MIOpen cannot run any convolution", "31 failed", "61 passed (3 slow)",
        "reports/one/report.html", "Confidence: medium: High",
    ):  # fmt: skip
        assert part in text


def test_lines_to_copy_are_never_wrapped() -> None:
    text = run_text(sample.rdna1(), width=30)
    assert "\n  export HSA_OVERRIDE_GFX_VERSION=10.3.0\n" in text


def test_a_run_that_died_is_continued_where_it_was_told_to_be() -> None:
    results = dataclasses.replace(sample.rdna1(), partial=True, options={"folder": "my runs/one"})
    assert "Continue it with `rocmprobe run --resume 'my runs/one'`." in run_text(results)
    assert "Continue it with `rocmprobe run --resume 'my runs/one'`." in markdown(summarize(results))


def test_machine_at_a_glance() -> None:
    text = machine_text(sample.rdna1_machine())
    assert text.startswith("AMD Radeon RX 5600 XT  gfx1010 -> gfx1030\n")
    assert "PCI 0x731f revision 0xca, 36 CUs, VRAM 5.98 GiB" in text
    assert "torch.version" in text
    assert "HSA_OVERRIDE_GFX_VERSION  10.3.0" in text


def test_machine_without_gpu_says_so() -> None:
    text = machine_text(sample.healthy_cpu().machine)
    assert "No AMD GPU was found." in text
    assert "Debian GNU/Linux 12" in text


def test_hostile_text_reaches_no_terminal(hostile: Rendered) -> None:
    results = read_results(hostile.results)
    machine = from_json(Machine, json.loads(hostile.results.read_text("utf-8"))["machine"])
    text = run_text(results) + machine_text(machine)
    assert "[bold]rich[/bold]" in text
    assert not any(ord(character) < 32 and character != "\n" for character in text)
    assert not set("\u2028\u202e\ud800") & set(text)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("results", [sample.rdna1(), sample.healthy_cpu()], ids=["rdna1", "cpu"])
def test_the_end_of_a_run_fits_on_a_screen_and_ends_with_the_verdict(results: Results, width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    terminal.render_run(summarize(results), {"report": Path("reports/one/report.html")}, console)
    lines = out.getvalue().splitlines()
    assert len(lines) <= 25
    assert any(line.startswith("Verdict: ") for line in lines[-5:])
    for row in "\n".join(block.body for block in summarize(results).to_copy.all_blocks).split():
        assert row in out.getvalue().split()


def test_in_an_ascii_locale_symbols_are_ascii(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="ascii", errors="backslashreplace") as file:
        terminal.render_run(summarize(sample.rdna1()), {}, OwnConsole(file=file, width=80))
    text = (tmp_path / "out").read_text("ascii")
    assert "  x MIOpen cannot run any convolution" in text
    assert not re.search(r"\\u[0-9a-f]{4}", text)


def test_code_in_a_sentence_is_not_broken() -> None:
    words = Text("Run it with `pip install --index-url https://a.example/ torch` or leave it as it is")
    rows = [row.plain for row in wrapped(words, 30)]
    assert rows == [
        "Run it with", "`pip install --index-url https://a.example/ torch`", "or leave it as it is",
    ]  # fmt: skip


ON_GITHUB = {"GITHUB_ACTIONS": "true"}


def test_each_finding_is_a_command_of_its_kind() -> None:
    results = sample.rdna1()
    said = workflow_commands(summarize(results))
    assert [line.split(" ")[0] for line in said] == ["::error", "::warning", "::notice"]
    assert "::error title=SIMULATED%3A miopen-no-solver (MIOpen)::" in said[0]
    assert results.findings[0].title in said[0]


@given(
    st.text(max_size=40),
    st.sampled_from(["%0A::error::x", "\n::set-output name=a::b", "::", ",file=x:y", "\r"]),
)
@settings(max_examples=examples(60))
def test_no_text_makes_a_command_of_its_own(text: str, attack: str) -> None:
    found = Finding("x", "error", f"{text}{attack}", text, f"{attack}{text}", advice=attack)
    (command,) = workflow_commands(summarize(dataclasses.replace(sample.rdna1(), findings=(found,))))
    assert len(command.splitlines()) == 1
    assert re.fullmatch(r"::error title=[^:,\r\n]*::[^\r\n]*", command)
    assert not re.search(r"%(?!25|0A|0D|3A|2C)", command)


def test_at_most_ten_of_a_kind_and_regressions_first() -> None:
    results = sample.rdna1()
    changed = (Change("cuda:0/x", "pass", "crash", "regression"),)
    many = dataclasses.replace(
        results,
        findings=results.findings[:1] * 30,
        changes=Changes("old.json", results.started, "0.1.0", 3, changed),
    )
    said = workflow_commands(summarize(many))
    assert len(said) == MOST
    assert "Regression::cuda:0/x: was pass, is crash" in said[0]
    assert "22 findings more of this kind" in said[-1]


def test_the_summary_is_appended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "summary.md"
    path.write_text("what stood there", "utf-8")
    annotate(summarize(sample.rdna1()), {"GITHUB_STEP_SUMMARY": str(path)})
    text = path.read_text("utf-8")
    assert text.startswith("what stood there\n# rocmprobe: Bypass")
    assert text.endswith(job_summary(summarize(sample.rdna1())))
    assert capsys.readouterr() == ("", "")


def full(folder: Path) -> Path:
    path = folder / "full.md"
    path.write_bytes(b"x" * (2**20 - 10))
    return path


@pytest.mark.parametrize("place", [full, lambda folder: folder, lambda folder: folder / "none" / "x.md"])
def test_a_summary_that_cannot_be_written_is_one_line(place, tmp_path: Path, capsys) -> None:
    path = place(tmp_path)
    size = path.stat().st_size if path.is_file() else 0
    annotate(summarize(sample.rdna1()), {"GITHUB_STEP_SUMMARY": str(path)})
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("rocmprobe: no summary of the job: ")
    assert len(said.err.splitlines()) == 1
    assert not path.is_file() or path.stat().st_size == size


def test_what_a_run_prints_commands_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with no_commands(ON_GITHUB):
        print("::error::from a log")
    annotate(summarize(sample.rdna1()), ON_GITHUB)
    stop, log, resume, *commands = capsys.readouterr().out.splitlines()
    token = stop.removeprefix("::stop-commands::")
    assert len(token) == 32
    assert (log, resume) == ("::error::from a log", f"::{token}::")
    assert len(commands) == 3
    with no_commands({}):
        annotate(summarize(sample.rdna1()), {})
    assert capsys.readouterr().out == ""
