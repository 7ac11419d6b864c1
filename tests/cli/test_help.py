"""The help: commands and options in groups, and lines that fit a terminal of 80 columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from runs import SMALL, cli, machine_file, rocmprobe, run

from rocmprobe.cli.base import COMMANDS, GROUPS, command


def shown(*arguments: object) -> str:
    ended = cli(*arguments, env={"COLUMNS": "80"})
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_every_command_is_once_in_the_help_in_one_line_of_80_columns() -> None:
    lines = shown("--help").splitlines()
    for name in COMMANDS:
        described = [line for line in lines if line.startswith(f"  {name} ")]
        assert len(described) == 1, name
        assert len(described[0]) <= 80
        assert described[0].endswith("."), described[0]
    titles = [line[:-1] for line in lines if line.endswith(":") and line[:-1] in GROUPS]
    assert titles == list(GROUPS)


def test_the_line_of_a_command_is_the_first_of_its_own_help() -> None:
    for commands in GROUPS.values():
        for name, line in commands.items():
            assert (command(name).help or "").partition("\n")[0] == line


@pytest.mark.parametrize(("name", "group", "option"), [
    ("run", "Advanced", "--no-redact"), ("run", "What to test", "--settings"), ("run", "CI", "--baseline"),
])  # fmt: skip
def test_options_are_in_groups(name: str, group: str, option: str) -> None:
    section = re.split(r"\n(?=\S)", shown(name, "--help").partition(f"\n{group}:")[2])[0]
    assert f"  {option} " in section


def test_every_option_of_a_grouped_command_is_in_its_help() -> None:
    text = shown("run", "--help")
    for option in command("run").params:
        assert option.param_type_name == "argument" or option.opts[-1] in text


def test_commands_that_take_results_take_the_folder_of_a_run(tmp_path: Path) -> None:
    made = run(tmp_path / "out", "--simulate", machine_file(tmp_path / "machine.toml"), *SMALL)
    for arguments in (
        ("env", "--simulated", made.folder), ("explain", made.folder), ("report", made.folder),
        ("compare", made.folder, made.folder), ("repro", made.folder, "default/convolution"),
        ("exec", "--simulated", "--profile", made.folder, "--", "true"),
    ):  # fmt: skip
        # `exec` becomes the program.
        ended = (rocmprobe if arguments[0] == "exec" else cli)(*arguments)
        assert ended.returncode == 0, (arguments, ended.stderr)
