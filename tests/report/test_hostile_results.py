"""Results with foreign text, wrong types, missing keys and odd numbers, through all commands that read them.

Nothing runs, nothing reaches a terminal raw, bad input is one line, and no form shows an identifier.
"""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sample
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rendering import render
from rich.console import Console
from runs import Run
from tiers import examples

from rocmprobe.cli import main
from rocmprobe.exec import command
from rocmprobe.judge.findings.machine import machine_findings
from rocmprobe.judge.summary import summarize
from rocmprobe.model.results import Fact, Machine, Results
from rocmprobe.model.results_file import from_json, read_results, to_json
from rocmprobe.report.issue.issue import issue_text
from rocmprobe.report.terminal.ending import render_run
from rocmprobe.report.terminal.github import job_summary, workflow_commands
from rocmprobe.report.terminal.machine_summary import render_machine
from rocmprobe.report.terminal.markdown import markdown
from rocmprobe.text import redact
from rocmprobe.text.plain_text import is_plain

HOSTILE = (
    "<script>alert(1)</script></script></style></textarea>--><img src=x onerror=alert(2)>'\"`{{7*7}}${7*7} "
    "javascript:alert(3) <a href=javascript:alert(4)>x</a> \x1b[31mred\x1b]8;;http://a.example\x07l\x1b]8;;"
    "\x07\n::error::told\n  ::warning::told\n##[error]told\n```\n~~~\n\n# h\n\x00\x07\x7f\x9b2J\ud800\udc80"
    "\ufffe\u202egpj\u2066\u200f @octocat #1 [bold]b[/bold] [link=http://a.example]l[/link] $(id) %s"
)
#: Words that decide what a field means; anything else there is refused, as the test of wrong types shows.
_WORDS = ("state", "rung", "direction", "severity", "verdict", "level", "purpose", "find_db",
          "confidence_level", "dtype", "check", "problem")  # fmt: skip
NAME = "default"
NAMES = ("md", "issue", "full issue", "compare", "compare as JSON", "explain", "facts", "repro", "env",
         "exec")  # fmt: skip


@pytest.fixture(scope="session")
def made(failing_run: Run) -> Path:
    return failing_run.folder


@pytest.fixture(scope="module")
def results(made: Path) -> Any:
    return json.loads((made / "results.json").read_text("utf-8"))


@pytest.fixture
def asked(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What every command says of some data as results: pairs of its words and how it ended."""
    monkeypatch.setattr(command, "replace_process", lambda *_: None)
    good, path = made / "results.json", tmp_path / "results.json"
    case = json.loads(good.read_text("utf-8"))["outcomes"][-1]["id"]
    forms: dict[str, tuple[object, ...]] = {
        "md": ("report", path, "--format", "md"), "issue": ("report", path, "--format", "issue"),
        "full issue": ("report", path, "--format", "issue", "--full"),
        "compare": ("compare", good, path), "compare as JSON": ("compare", path, good, "--json"),
        "explain": ("explain", path), "explain as JSON": ("explain", path, "--json"),
        "facts": ("explain", good, "--facts", path), "env": ("env", path),
        "env for fish": ("env", path, "--shell", "fish"),
        "exec": ("exec", "--profile", path, "--", "python", "-c", "1"), "repro": ("repro", path, case),
    }  # fmt: skip

    def ask(data: Any, *wanted: str) -> Iterator[tuple[str, Result]]:
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        for name in wanted or forms:
            yield name, CliRunner().invoke(main, [str(word) for word in forms[name]])

    return ask


def check(name: str, done: Result, where: object) -> None:
    told = (name, where, done.output[-2000:])
    assert done.exit_code in (0, 1, 2), told
    assert is_plain(done.output), told
    if done.exit_code == 2:
        assert done.output.startswith("rocmprobe: "), told
        assert done.output.count("\n") == 1, told
        assert len(done.output) < 2100, told


Place = tuple[Any, ...]


def places(data: Any, place: Place = ()) -> Iterator[Place]:
    """Every value; of a list the first and the last element stand for all."""
    if place:
        yield place
    if isinstance(data, dict):
        for key, inner in data.items():
            yield from places(inner, (*place, key))
    elif isinstance(data, list):
        for number in {0, len(data) - 1} if data else ():
            yield from places(data[number], (*place, number))


def distinct(data: Any) -> list[Place]:
    """One of all places that differ in numbers of elements, or in names of facts and timings, only."""
    free = ("facts", "variables", "timings", "numerics", "memory", "env", "torch", "conditions", "mapped")
    found: dict[Place, Place] = {}
    for place in places(data):
        kind = tuple(
            "*" if isinstance(step, int) or (before in free) else step
            for before, step in zip((None, *place), place)
        )
        found.setdefault(kind, place)
    return list(found.values())


def at(data: Any, place: Place) -> Any:
    for step in place:
        data = data[step]
    return data


def changed(data: Any, place: Place, value: Any) -> Any:
    data = copy.deepcopy(data)
    at(data, place[:-1])[place[-1]] = value
    return data


def spoiled(data: Any, added: str = HOSTILE, key: str = "") -> Any:
    """``data`` with ``added`` to every free string, and to the names of facts and the like."""
    if isinstance(data, dict):
        more = dict(zip([added], data.values())) if key in ("facts", "variables") else {}
        return {**{name: spoiled(value, added, name) for name, value in data.items()}, **more}
    if isinstance(data, list):
        return [spoiled(each, added, key) for each in data]
    # The names keep the parts of the page alive that look for them.
    return data + added if isinstance(data, str) and key not in _WORDS and data != NAME else data


@pytest.mark.thorough
def test_every_string_alone(results: Any, asked: Any) -> None:
    strings = [place for place in distinct(results) if isinstance(at(results, place), str)]
    assert len(strings) > 60
    for number, place in enumerate(strings):
        spoilt = changed(results, place, at(results, place) + HOSTILE)
        # Each field meets two commands, and each command fields of every part.
        for name, done in asked(spoilt, *NAMES[number % 5 :: 5]):
            check(name, done, place)


def test_all_strings_at_once(results: Any, asked: Any) -> None:
    ends = {}
    for name, done in asked(spoiled(results)):
        check(name, done, "all")
        ends[name] = done.exit_code
    # Of a configuration that is none no shell is told; what a report says of it is inert.
    assert ends["env"] == ends["env for fish"] == 2
    assert {ends[name] for name in ("md", "issue", "explain", "facts")} == {0}


@pytest.mark.parametrize("value", ["\x00", "\ud800", "", "x" * 10**6], ids=["NUL", "half", "empty", "long"])
def test_strings_of_one_kind(results: Any, asked: Any, value: str) -> None:
    places = (
        ("machine", "gpus", 0, "name", "value"), ("outcomes", -1, "evidence"), ("trials", 0, "log"),
        ("recommendation", "sentence"), ("recommendation", "configuration", "code"), ("started",),
    )  # fmt: skip
    data = results
    for place in places:
        data = changed(data, place, [value] if place[-1] == "evidence" else value)
    for name, done in asked(data):
        check(name, done, value[:10])
        assert len(done.output) < 200_000 or "JSON" in name, name


@pytest.mark.thorough
def test_wrong_types_and_missing_keys(results: Any, asked: Any) -> None:
    odd = (None, True, 7, -1, 0.5, 1e308, 2**63, "text", [], {}, [HOSTILE], {HOSTILE: HOSTILE})
    for number, place in enumerate(distinct(results)):
        spoilt = changed(results, place, odd[number % len(odd)])
        if number % 3 == 0 and isinstance(place[-1], str):
            spoilt = copy.deepcopy(results)
            del at(spoilt, place[:-1])[place[-1]]
        for name, done in asked(spoilt, NAMES[number % len(NAMES)]):
            check(name, done, place)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "1" + "0" * 400, "1" + "0" * 9999, "1e308"])
def test_numbers_that_nobody_can_compute_with(results: Any, asked: Any, number: str) -> None:
    data = changed(results, ("outcomes", -1, "timings"), {"fwd": "NUMBER", "first_call": "NUMBER"})
    data = changed(data, ("trials", 0, "seconds"), "NUMBER")
    for name, done in asked(json.dumps(data).replace('"NUMBER"', number)):
        check(name, done, number)
        # 1e308 is a JSON number that a float can hold.
        assert done.exit_code == 2 or number == "1e308"


def test_a_github_job_takes_no_line_for_a_command(
    results: Any, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for name, done in asked(spoiled(results, "\n::error::told\n##[error]told\n")):
        stopped = ""
        for line in done.output.splitlines():
            if line.startswith("::stop-commands::"):
                stopped = line.rpartition("::")[2]
            elif line == f"::{stopped}::":
                stopped = ""
            elif not stopped:
                assert not line.lstrip().startswith("::"), (name, line)
                assert "##[" not in line or name == "repro" or "JSON" in name, (name, line)


@pytest.mark.thorough
@pytest.mark.parametrize("bypass_csp", [False, True], ids=["policy", "escaping-alone"])
def test_a_browser_runs_nothing(results: Any, visit: Any, tmp_path: Path, bypass_csp: bool) -> None:
    rendered = render(spoiled(results), tmp_path / "page")
    assert is_plain(rendered.junit.read_text("utf-8"))
    seen = visit(rendered, bypass_csp=bypass_csp)
    page = seen.page
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true })")
    assert page.locator("#results-table tbody tr").count() == len(results["outcomes"])
    # None but our own, and nothing that would act on a click.
    assert page.locator("[onerror], [onload], [onclick], [href^=javascript], img[src=x]").count() == 0
    assert seen.noise == []
    assert seen.requests == []


class TestJournal:
    @pytest.mark.parametrize(
        ("line", "named"),
        [
            pytest.param("[" * 100_000, False, id="deep"),
            pytest.param('{"record": "outcome", "outcome": ' + '{"a": ' * 300 + "1" + "}" * 301, True,
                         id="deep outcome"),
            pytest.param('{"record": "outcome", "outcome": ' + "9" * 5000 + "}", True, id="huge"),
            pytest.param('{"record": "end", "at": "tor', False, id="torn"),
            pytest.param("\x00\x1b[31m", False, id="control"),
            pytest.param("{\x00}", True, id="control in an object"),
            pytest.param('{"record": "outcome"}', True, id="no outcome"),
            pytest.param('{"record": ["x"]}', True, id="no kind"),
            pytest.param('{"record": "retry", "case": 7}', True, id="no case"),
            pytest.param(f'{{"record": "outcome", "at": 1, "outcome": {json.dumps({"state": HOSTILE})}}}',
                         True, id="state"),
        ],
    )  # fmt: skip
    def test_a_damaged_record_is_left_out(self, made: Path, tmp_path: Path, line: str, named: bool) -> None:
        first, *others = (made / "journal.jsonl").read_text("utf-8").splitlines()
        (tmp_path / "journal.jsonl").write_text("\n".join([first, line, *others, line]) + "\n", "utf-8")
        target = tmp_path / "out.json"
        done = CliRunner().invoke(main, ["report", str(tmp_path), "--format", "json", "-o", str(target)])
        assert (done.exit_code, done.output) == (0, f"{target}\n")
        found = read_results(target)
        assert len(found.outcomes) == len(read_results(made / "results.json").outcomes)
        assert found.options.get("damaged") == ([2, len(others) + 3] if named else None)

    def test_a_record_of_a_later_version_is_refused(self, made: Path, tmp_path: Path) -> None:
        path, line = tmp_path / "journal.jsonl", '{"record": "of a later version"}'
        path.write_text((made / "journal.jsonl").read_text("utf-8") + line + "\n", "utf-8")
        done = CliRunner().invoke(main, ["report", str(tmp_path), "--format", "json"])
        check("report", done, line)
        assert done.exit_code == 2
        assert f"{path}: record: " in done.output

    @pytest.mark.parametrize(
        ("place", "value"),
        [((0, "machine", "gpus"), HOSTILE), ((0, "options", "level"), HOSTILE), ((0, "targets"), [7]),
         ((0, "settings"), {HOSTILE: 3}), ((0, "simulation"), {}), ((0, "options", "shapes"), 7)],
        ids=["gpus", "level", "targets", "settings", "simulation", "shapes"],
    )  # fmt: skip
    def test_a_record_of_wrong_types_is_one_line(
        self, made: Path, tmp_path: Path, place: Place, value: Any
    ) -> None:
        lines = (made / "journal.jsonl").read_text("utf-8").splitlines()
        outcomes = [line for line in lines if json.loads(line)["record"] == "outcome"]
        data = changed([json.loads(line) for line in (lines[0], outcomes[0])], place, value)
        (tmp_path / "journal.jsonl").write_text("\n".join(map(json.dumps, data)) + "\n")
        commands: list[list[object]] = [["report", tmp_path, "--format", "md"]]
        commands.append(["compare", tmp_path, made])
        for words in commands:
            done = CliRunner().invoke(main, [str(word) for word in words])
            check(str(words[0]), done, place)
            assert done.exit_code == 2
            assert f"{tmp_path}{os.sep}journal.jsonl: " in done.output


def test_the_options_of_results_to_verify_are_checked(results: Any, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for name, value in (("device", 7), ("problems", None), ("level", "fun"), ("skip", 3), ("simulate", [])):
        path.write_text(json.dumps(changed(results, ("options", name), value)))
        done = CliRunner().invoke(main, ["run", "--out", str(tmp_path / "out"), "--verify", str(path)])
        check("verify", done, name)
        assert (done.exit_code, "options: " in done.output and f"`$.{name}`" in done.output) == (2, True)
        assert not (tmp_path / "out").exists()


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
