"""Commands about this machine, and what rocmprobe knows of others."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Optional

import click

from rocmprobe.cli.base import answering, main, needs_linux
from rocmprobe.model.exit_codes import FINDINGS, NOTHING, OK
from rocmprobe.model.results import BadInput, Machine, NothingToTest, to_json
from rocmprobe.text.printing import say_json


@main.command("detect")
@click.option("--json", "as_json", is_flag=True, help="All facts as JSON.")
@click.option("--root", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path("/"),
              help="Read a recorded root file system instead of /.")  # fmt: skip
@click.option("--deep", is_flag=True, help="Also query torch, in a separate process; takes seconds.")
@click.option(
    "--no-redact", is_flag=True, help="Keep names, addresses and the like (docs/reporting-a-bug.md)."
)
@answering
def detect_command(as_json: bool, root: Path, deep: bool, no_redact: bool) -> int:
    """Show facts about this machine with their sources, and findings. Runs no kernel, needs no torch.

    Exits 3 where there is no AMD GPU.

    \b
    Examples:
      rocmprobe detect --json
      rocmprobe detect --deep
    """
    from rocmprobe.detect import ask_torch, detect
    from rocmprobe.judge.findings.machine import machine_findings
    from rocmprobe.model.results import from_json
    from rocmprobe.text.redact import census, redacted

    if deep and root != Path("/"):
        raise BadInput("--deep asks the torch of this machine; leave out --root, or --deep")
    machine = detect(root)
    if deep:
        machine = replace(machine, facts={**machine.facts, **ask_torch()})
    if not no_redact:
        machine = from_json(Machine, redacted(to_json(machine)))
    findings = machine_findings(machine)
    if as_json:
        data = {**to_json(machine), "findings": [to_json(finding) for finding in findings]}
        say_json({**data, "redacted": {} if no_redact else census(data)})
    else:
        from rocmprobe.cli.github_job import no_commands
        from rocmprobe.report.terminal.machine_summary import render_machine
        from rocmprobe.text.console import Console

        with no_commands(os.environ):
            render_machine(machine, findings, Console())
    return OK if machine.amd_gpus else NOTHING


@main.command("install")
@click.option("--stack", metavar="NAME", help="This stack alone, such as official-rocm5.2.")
@click.option("--constraints", "constraints", type=click.Path(path_type=Path), metavar="FILE",
              help="Write the constraints file of the first stack, or of --stack.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Stacks and commands as JSON (docs/installing.md).")
@click.option("--facts", type=click.Path(path_type=Path), metavar="FILE",
              help="Another machine: what `rocmprobe detect --json` prints, or results.")  # fmt: skip
@click.option("--fact", "given", multiple=True, metavar="NAME=VALUE",
              help="Another machine: a fact of it, such as gpu, true_gfx, os.")  # fmt: skip
@click.option("--simulate", metavar="MACHINE", help="A simulated machine (`rocmprobe list machines`).")
@answering
def install_command(
    stack: Optional[str], constraints: Optional[Path], as_json: bool, facts: Optional[Path],
    given: tuple[str, ...], simulate: Optional[str],
) -> int:  # fmt: skip
    """Print which torch there is for this GPU, and the commands that install it. Runs none of them.

    The stacks are ranked by what their owners report (docs/installing.md). Exits 1 where no published torch
    is known to work, 3 where there is no AMD GPU.

    \b
    Examples:
      rocmprobe install
      rocmprobe install --fact 'gpu=RX 5700 XT' --fact os=Windows
      rocmprobe install --stack official-rocm5.2 --constraints constraints.txt
    """
    from rocmprobe.cli import install

    described = facts or given
    if simulate and described:
        raise BadInput("--simulate is a machine of its own; leave out --facts and --fact, or --simulate")
    place = install.place_of_facts(facts, given) if described else install.place_of(_machine(simulate))
    found = install.chosen(place, stack)
    works = any(each.status != "fails" for each in found)
    if constraints:
        if not works:
            raise BadInput(f"--constraints: no stack is known to work on {place.gfx}; leave it out")
        install.write_constraints(found[0], place, constraints)
    if as_json:
        say_json(install.data(place, found, constraints))
    else:
        from rocmprobe.cli.github_job import no_commands
        from rocmprobe.text.printing import say

        with no_commands(os.environ):
            for line in install.lines(place, found, constraints):
                say(line)
    return OK if works else FINDINGS


def _machine(simulated: Optional[str]) -> Machine:
    if simulated is None:
        from rocmprobe.detect import detect

        return detect(Path("/"))
    from rocmprobe.simulate.machines import load_machine

    return load_machine(simulated).machine


@main.command("monitor")
@click.option(
    "--csv", type=click.Path(path_type=Path), metavar="FILE", help="Also append every reading to FILE."
)
@click.option("--root", type=click.Path(path_type=Path, exists=True), default=Path("/"), hidden=True)
@answering
def monitor_command(csv: Optional[Path], root: Path) -> int:
    """Show temperatures, fan, power, clocks and memory of every AMD GPU, live, beside a long training.

    Ctrl-C ends it. Exits 3 where there is no AMD GPU.

    \b
    Example:
      rocmprobe monitor --csv training.csv
    """
    if why := needs_linux("monitor"):
        raise NothingToTest(why)
    from rocmprobe.cli.monitor import monitor

    monitor(root, csv)
    return OK


@main.command("list")
@click.argument(
    "what",
    type=click.Choice(
        ("settings", "solvers", "problems", "checks", "machines", "variables", "gpus", "causes")
    ),
)
@answering
def list_command(what: str) -> int:
    """Print one of the tables that rocmprobe works from.

    \b
    Example:
      rocmprobe list settings
    """
    from rocmprobe.report.terminal.tables import TABLES
    from rocmprobe.text.console import Console

    Console().print(TABLES[what]())
    return OK
