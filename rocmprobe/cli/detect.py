"""``rocmprobe detect``: prints facts about this machine, with their sources."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from rocmprobe.cli.base import exit_code_command
from rocmprobe.model.exit_codes import NOTHING, OK
from rocmprobe.model.results import BadInput
from rocmprobe.model.results_file import to_json
from rocmprobe.text.printing import say_json


@click.command("detect")
@click.option("--json", "as_json", is_flag=True, help="All facts as JSON.")
@click.option("--root", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path("/"),
              help="Read a recorded root file system instead of /.")  # fmt: skip
@click.option("--deep", is_flag=True, help="Also query torch, in a separate process; takes seconds.")
@click.option(
    "--no-redact", is_flag=True, help="Keep names, addresses and the like (docs/reporting-a-bug.md)."
)
@exit_code_command
def detect_command(as_json: bool, root: Path, deep: bool, no_redact: bool) -> int:
    """Show the GPU, driver, ROCm and PyTorch of this machine.

    Each fact has its source. Runs nothing on the GPU, and needs no torch. Exits 3 if there is no AMD GPU.

    \b
    Examples:
      rocmprobe detect --json
      rocmprobe detect --deep
    """
    from rocmprobe.detect import detect, query_torch
    from rocmprobe.judge.findings.machine import machine_findings
    from rocmprobe.text.redact import census, redacted

    if deep and root != Path("/"):
        raise BadInput("--deep queries the torch of this machine; leave out --root or --deep")
    machine = detect(root)
    if deep:
        machine = replace(machine, facts={**machine.facts, **query_torch()})
    if not no_redact:
        machine = redacted(machine)
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
