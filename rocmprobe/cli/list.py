"""``rocmprobe list``: prints the tables that rocmprobe uses."""

from __future__ import annotations

import click

from rocmprobe.cli.base import exit_code_command
from rocmprobe.model.exit_codes import OK


@click.command("list")
@click.argument(
    "what",
    type=click.Choice(
        ("settings", "solvers", "problems", "checks", "machines", "variables", "gpus", "causes")
    ),
)
@exit_code_command
def list_command(what: str) -> int:
    """Print a table: settings, checks, GPUs, causes, machines, ...

    \b
    Example:
      rocmprobe list settings
    """
    from rocmprobe.report.terminal.tables import TABLES
    from rocmprobe.text.console import Console

    Console().print(TABLES[what]())
    return OK
