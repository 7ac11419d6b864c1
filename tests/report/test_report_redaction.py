"""Whatever identifier stands in facts, evidence or logs: no medium shows it."""

from __future__ import annotations

import dataclasses
import io
import re
import tempfile
from pathlib import Path

import pytest
import sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rendering import render
from rich.console import Console
from tiers import examples

from rocmprobe.judge.findings.machine import machine_findings
from rocmprobe.judge.summary import summarize
from rocmprobe.model.results import Fact, Machine, Results
from rocmprobe.model.results_file import from_json, to_json
from rocmprobe.report.issue.issue import issue_text
from rocmprobe.report.terminal.ending import render_run
from rocmprobe.report.terminal.github import job_summary, workflow_commands
from rocmprobe.report.terminal.machine_summary import render_machine
from rocmprobe.report.terminal.markdown import markdown
from rocmprobe.text import redact

hexadecimal = st.text("0123456789abcdef", min_size=12, max_size=12)
#: An identifier, and how a program would write it.
planted = st.one_of(
    st.sampled_from([("melinda", "{}"), ("workhorse", "on {}.lan:"), ("/home/melinda", "{}/x.py")]),
    st.from_regex(r"\A[a-z]{3}[0-9]{4}[a-z]{3}\Z").map(lambda name: (name, "/home/{}/x")),
    st.ip_addresses(v=4, network="192.168.0.0/16").map(lambda address: (str(address), "({})")),
    st.ip_addresses(v=6, network="2001:db8::/32").map(lambda address: (str(address), "[{}]:29500")),
    hexadecimal.map(lambda digits: (":".join(re.findall("..", "a" + digits[1:])), "ether {} up")),
    hexadecimal.map(lambda digits: (f"95a1{digits}", "GPU-{}")),
    st.uuids().map(lambda uuid: (str(uuid), "UUID={}")),
    hexadecimal.map(lambda digits: (f"ghp_{digits * 3}", "token {}")),
)

SERIAL = "K7XX01234567890"


def forget() -> None:
    for each in vars(redact).values():
        getattr(each, "cache_clear", lambda: None)()


@pytest.fixture
def identity(monkeypatch):
    monkeypatch.setenv("USER", "melinda")
    monkeypatch.setenv("HOME", "/home/melinda")
    monkeypatch.setattr("socket.gethostname", lambda: "workhorse")
    forget()
    yield
    forget()


def saying(line: str) -> Results:
    """Results with ``line`` in a fact, its source, a variable, a log, evidence and an attempt."""
    results = sample.rdna1()
    broken = next(outcome for outcome in results.outcomes if outcome.state == "error")
    attempts = tuple(dataclasses.replace(attempt, message=line) for attempt in broken.attempts)
    broken = dataclasses.replace(broken, evidence=(line, line), attempts=attempts)
    trials = tuple(dataclasses.replace(trial, log=line) for trial in results.trials)
    told = {"x": Fact(line, line), "y": Fact(None, line), "rocm.version": Fact(None, line)}
    told["board.serial"] = Fact(SERIAL)
    machine = Machine(results.machine.gpus, told, {"V": Fact(line)})
    return dataclasses.replace(results, machine=machine, trials=trials, outcomes=(broken,))


@given(st.lists(planted, min_size=6, max_size=12))
@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_medium_shows_an_identifier(identity: None, found: list[tuple[str, str]]) -> None:
    line = " ".join(form.format(identifier) for identifier, form in found)
    results = from_json(Results, redact.redacted(to_json(saying(line))))
    screen = Console(file=io.StringIO(), width=200, soft_wrap=True)
    render_run(summarize(results), {}, screen)
    render_machine(results.machine, machine_findings(results.machine), screen)
    with tempfile.TemporaryDirectory() as folder:
        rendered = render(results, Path(folder))
        media = [path.read_text("utf-8") for path in (rendered.results, rendered.page, rendered.junit)]
    media += [
        markdown(summarize(results)),
        job_summary(summarize(results)),
        *workflow_commands(summarize(results)),
    ]
    media += [issue_text(summarize(results), full) for full in (False, True)]
    named = [SERIAL, *(identifier for identifier, _ in found)]
    for medium in (*media, screen.file.getvalue()):
        assert [identifier for identifier in named if identifier in medium] == []
