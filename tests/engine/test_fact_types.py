"""Types of facts: each fact has one, and a journal with a fact of another type is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Optional

import msgspec
import pytest
from click.testing import CliRunner, Result
from runs import PROBLEM, all_machines, machine_file, run

from rocmprobe.cli import main
from rocmprobe.cli import run as run_command
from rocmprobe.detect import detect
from rocmprobe.engine.journal import RunJournal
from rocmprobe.engine.run import results
from rocmprobe.model.facts import FACTS, GPU_FACTS, type_of
from rocmprobe.model.results import BadInput, Gpu
from rocmprobe.report.write import write_report
from rocmprobe.simulate.machines import load_machine

VALUES = ("text", 7, ["text"], [7], True, None, {"text": "text"}, {"text": 7}, 0.5)
ids = pytest.mark.parametrize(
    "value", [*VALUES[:2], *(pytest.param(each, marks=pytest.mark.thorough) for each in VALUES[2:])], ids=str
)


def is_of(kind: Any, value: Any) -> bool:
    try:
        msgspec.convert(value, Optional[kind])
    except msgspec.ValidationError:
        return False
    return True


def test_every_fact_has_a_type() -> None:
    assert set(GPU_FACTS) == {field.name for field in fields(Gpu)}
    machines = [detect(), *(load_machine(name).machine for name in all_machines())]
    for machine in machines:
        for name, fact in machine.facts.items():
            assert name in FACTS or name.startswith(("errors.", "variables.")), name
            assert is_of(type_of(name), fact.value), name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The journal of a run that has ended."""
    folder = tmp_path_factory.mktemp("made")
    machine = machine_file(folder / "machine.toml", {"library": "miopen", "effect": "raise"})
    run(folder / "run", "--simulate", machine, "--only", "convolution", "--settings", "vendor-off",
        "--problem", PROBLEM, "--purpose", "inference")  # fmt: skip
    lines = (folder / "run" / "journal.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def write(made: list[dict[str, Any]], tmp_path: Path) -> Any:
    """A function that writes the journal with some other facts and returns its folder."""

    def write(facts: dict[str, Any]) -> Path:
        (tmp_path / "run").mkdir(exist_ok=True)
        first = json.loads(json.dumps(made[0]))
        machine, source = first["machine"], "the test"
        for name, value in facts.items():
            kind, _, field = name.partition(".")
            known = {"gpus": machine["gpus"][0], "variables": machine["variables"]}.get(kind)
            if known is None:
                machine["facts"][name] = {"value": value, "source": source}
            else:
                known[field] = {"value": value, "source": source}
        path = tmp_path / "run" / "journal.jsonl"
        path.write_text("".join(f"{json.dumps(record)}\n" for record in (first, *made[1:])), "utf-8")
        return path.parent

    return write


NAMES = (*FACTS, *(f"gpus.{name}" for name in GPU_FACTS), "variables.MIOPEN_FIND_MODE")


def fits(name: str, value: Any) -> bool:
    kind, _, field = name.partition(".")
    known = {"gpus": GPU_FACTS.get(field), "variables": str}.get(kind) or FACTS.get(name)
    return is_of(known, value)


@ids
def test_each_fact_of_another_type_is_refused_by_name(write: Any, value: Any) -> None:
    assert all(fits(name, None) for name in NAMES)
    for name in NAMES:
        folder = write({name: value})
        if fits(name, value):
            assert results(RunJournal(folder))
            continue
        with pytest.raises(BadInput, match=f"journal.jsonl: fact {name}: .*; the file is damaged"):
            RunJournal(folder)


def commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Result]:
    """The commands that read a journal. Nothing is left to run, so pytest's session is left out."""
    monkeypatch.setattr(run_command, "_pytest", lambda folder, *_: (0, write_report(RunJournal(folder))))
    for words in (
        ["report", folder, "-o", folder / "report.html"], ["report", folder, "--format", "issue"],
        ["compare", folder, folder], ["run", "--resume", folder, "--force"],
        ["report", folder / "results.json", "--format", "md"], ["explain", folder / "results.json"],
    ):  # fmt: skip
        yield CliRunner().invoke(main, [str(word) for word in words])


@ids
def test_commands_take_every_value_of_the_right_type(
    write: Any, monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    for done in commands(write({name: value for name in NAMES if fits(name, value)}), monkeypatch):
        assert done.exit_code in (0, 1), done.output


@pytest.mark.parametrize("name", ["dmesg.events", "miopen.kernel_cache", "gpus.cus"])
def test_commands_refuse_a_fact_of_another_type_in_one_line(
    write: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = write({name: "text"})
    for done in list(commands(folder, monkeypatch))[:4]:
        assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output
        assert f"journal.jsonl: fact {name}: Expected " in done.output
