"""Blocks for the user to copy: shell lines, Python lines, and the command that applies a configuration."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Optional

from rocmprobe.judge.recommendation.advice import other_build
from rocmprobe.knowledge.variables import VARIABLE_NAME
from rocmprobe.model.results import Configuration, Results
from rocmprobe.text.plain_text import sentence_case

_RUN = "Run your program with the recommended configuration"


@dataclass(frozen=True)
class Block:
    """Text for the reader to copy, with a label and a language ("sh" or "python")."""

    label: str
    body: str
    language: str


@dataclass(frozen=True)
class ToCopy:
    """Ways to apply one configuration.

    - ``use``: what the configuration is for, e.g. "float16", or "" for the recommended configuration
    - ``command``: command that applies the configuration to an unchanged program, or that installs another
      PyTorch, or None
    - ``blocks``: lines that apply the configuration without ``command``
    - ``notes``: sentences about layers
    """

    use: str = ""
    command: Optional[Block] = None
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def all_blocks(self) -> tuple[Block, ...]:
        return (self.command, *self.blocks) if self.command else self.blocks


def to_copy(results: Results, configuration: Configuration, use: str = "") -> ToCopy:
    """Return the blocks with which a user applies ``configuration``."""
    exports = [f"unset {name}" for name in configuration.unset if VARIABLE_NAME.fullmatch(name)]
    exports += [
        f"export {name}={shlex.quote(value)}"
        for name, value in configuration.env.items()
        if VARIABLE_NAME.fullmatch(name)
    ]
    parts = (
        ("Shell, before anything else", configuration.command, "sh"),
        ("Shell, before the program starts", "\n".join(exports), "sh"),
        ("Python, before the model runs", configuration.code.strip("\n"), "python"),
    )
    prefix = f"For {use}: " if use else ""
    blocks = [Block(f"{prefix}{label}", body, language) for label, body, language in parts if body.strip()]
    command = None
    if blocks and _can_exec(results, configuration, use):
        label = f"For {use}, without changing the program" if use else _RUN
        command = Block(label, exec_command(results, configuration), "sh")
        if not use:
            blocks[0] = replace(blocks[0], label=f"Or without rocmprobe exec. {blocks[0].label}")
    if not use and (build := _install_block(results)):
        others = (command, *blocks) if command else blocks
        command, blocks = build, [replace(each, label=f"Until then. {each.label}") for each in others]
    notes = tuple(sentence_case(note).rstrip(".") + "." for note in configuration.layers)
    return ToCopy(use, command, tuple(blocks), notes)


def _install_block(results: Results) -> Optional[Block]:
    """Return the commands that install another PyTorch, or None if the GPU works with this one."""
    found = results.recommendation
    made = other_build(results.machine, results.findings, found.verdict) if found else None
    if made is None:
        return None
    return Block(f"Install {made.option.title}", "\n".join(made.steps[0][1]), "sh")


def _can_exec(results: Results, configuration: Configuration, use: str) -> bool:
    """Return True if ``rocmprobe exec`` can apply ``configuration`` to an unchanged program."""
    setting = results.setting(configuration.setting)
    # ``rocmprobe exec`` does not change the dtype or the memory format of a program.
    needs_other_program = bool(use) and setting is not None and setting.changes_problems
    # A partial run is no profile.
    return bool(configuration.setting) and not results.partial and not needs_other_program


def exec_command(results: Results, configuration: Configuration) -> str:
    """Return the command that runs a program under ``configuration``."""
    recommended = results.recommended == configuration.setting
    setting = "" if recommended else f"--setting {shlex.quote(configuration.setting or '')} "
    profile = f"{_simulated_option(results)}--profile {run_path(results)}"
    return f"rocmprobe exec {profile} {setting}-- python train.py"


def env_command(results: Results) -> str:
    """Return the shell line that sets the variables of the recommended configuration."""
    return f'eval "$(rocmprobe env {_simulated_option(results)}{run_path(results)})"'


def verify_command(results: Results) -> str:
    """Return the command that tests the recommended configuration again."""
    return f"rocmprobe run --verify {shlex.quote(results.relative_path)}"


def _simulated_option(results: Results) -> str:
    """Return the option with which a command accepts simulated results, or "" for a real run."""
    return "--simulated " if results.simulated else ""


def run_path(results: Results) -> str:
    """Return the quoted path of the run's folder, or of the results file if the folder is unknown."""
    path = PurePosixPath(results.relative_path)
    return shlex.quote(str(path.parent if path.parent.name else path))
