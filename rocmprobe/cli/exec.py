"""``rocmprobe exec``: the user's program under the recommended configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

import click

from rocmprobe.cli.base import answering, needs_linux
from rocmprobe.model.results import BadInput
from rocmprobe.text.printing import print_stderr

_PROGRAM = {"allow_interspersed_args": False}


@click.command("exec", context_settings=_PROGRAM)
@click.option("--profile", type=click.Path(path_type=Path), metavar="RESULTS",
              help="Results that recommend it (default: reports/recommended/results.json).")  # fmt: skip
@click.option("--setting", default="", metavar="NAME",
              help="Another setting of the results than the recommended one.")  # fmt: skip
@click.option("--simulated", is_flag=True, help="Use results of a simulated machine, too.")
@click.option("--bypass", type=click.Choice(("auto", "always", "never")), default="auto", show_default=True,
              help="When to install the bypass: if recommended, on every device, or never.")  # fmt: skip
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@answering
def exec_command(
    profile: Optional[Path], setting: str, simulated: bool, bypass: str, command: tuple[str, ...]
) -> int:
    """Run any Python program, unchanged, under the recommended configuration (docs/bypass.md). Of results
    of `run --python`, `python` is that of the recommended environment.

    The exit code is the program's own; 2 where nothing was run.

    \b
    Examples:
      rocmprobe exec -- python train.py --epochs 3
      rocmprobe exec --setting vendor-off -- python train.py
      rocmprobe exec --bypass always -- torchrun --nproc_per_node 2 train.py
    """
    if why := needs_linux("exec"):
        raise BadInput(why)
    from rocmprobe.exec.command import become, checked, environment, interpreter
    from rocmprobe.exec.conditions import conditions

    under = conditions(profile, bypass, setting, simulated)
    environ, words = under.inside(os.environ), under.command(command)
    program = checked(words, environ)
    python = interpreter(words, environ)
    environ = environment(environ, under.as_variables())
    print_stderr(f"running under {under.words}")
    if under.python and python and not under.is_python(python):
        print_stderr(
            f"warning: {python} runs this, not the environment {under.environment} that was recommended; "
            "write `python` without a folder to use that"
        )
    become(program, words, environ)
