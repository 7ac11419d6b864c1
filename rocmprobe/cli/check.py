"""``rocmprobe check``: checks within a time limit that one configuration works."""

from __future__ import annotations

import os
import signal
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

import click

from rocmprobe.cli.base import exit_code_command, needs_linux
from rocmprobe.engine.check_verdict import exit_code, make_verdict
from rocmprobe.model.exit_codes import USAGE
from rocmprobe.model.results import BadInput
from rocmprobe.text.printing import print_stderr, print_stderr_lines, say, say_json

#: Maximum seconds after the budget until the process exits. Printing hangs while nobody reads the output.
_OVER = 0.5
#: PATH if the environment has none, as under service managers and Slurm. Compilers are found through PATH.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/rocm/bin"


@click.command("check")
@click.argument("results", required=False, type=click.Path(path_type=Path), metavar="[RESULTS|FOLDER]")
@click.option("--budget", type=click.FloatRange(3, 86400), default=50, show_default=True, metavar="SECONDS",
              help="Limit for the wall time of the whole check.")  # fmt: skip
@click.option("--device", default="auto", help="auto, cpu or cuda:N (auto: the device of the results).")
@click.option("--setting", default="", metavar="NAME",
              help="Check this setting, not the recommended one.")  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON object, not one line of text (docs/ci.md)."
)
@click.option("--simulate", default="", metavar="MACHINE",
              help="A simulated machine (rocmprobe list machines), or its TOML file.")  # fmt: skip
@exit_code_command
def check_command(
    results: Optional[Path], budget: float, device: str, setting: str, as_json: bool, simulate: str
) -> int:
    """Check in one line and 50 seconds that the configuration works.

    The line begins with one of five words: `ok`, `problem`, `unknown`, `busy`, or `nothing` (no such device).
    Few and small cases run, with one setting. The check ends within its budget, whatever hangs, and does not
    touch a GPU that another process uses (docs/ci.md).

    \b
    Examples:
      rocmprobe check
      rocmprobe check reports/latest --budget 20 --json
    """
    missing = needs_linux("check")
    if missing:
        raise BadInput(missing)
    from rocmprobe.engine.watchdog import Send, Watchdog
    from rocmprobe.process.limits import check_limits

    check_limits()

    def work(send: Send) -> None:
        # The watchdog's process must not wait for these imports.
        from rocmprobe.engine.check import CheckOptions, probe

        probe(CheckOptions(results, device, setting, simulate, budget), send)

    if not os.environ.get("PATH"):
        os.environ["PATH"] = _PATH
    os.environ.setdefault("HOME", "/")
    started = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    watchdog = Watchdog(work, budget)
    progress = watchdog.wait()
    if progress.ended != "signal":
        # End all processes first, because the verdict says if a process cannot be killed.
        watchdog.end()
    if progress.over.usage:
        print_stderr(progress.over.usage)
        return USAGE
    verdict = make_verdict(progress, budget, started)
    code = exit_code(verdict)
    watchdog.limit(_OVER, code)
    if as_json:
        say_json(verdict.as_json())
    else:
        say(verdict.verdict)
    sys.stdout.flush()
    if progress.over.traceback:
        print_stderr_lines(progress.over.traceback.rstrip("\n"))
    if progress.ended == "signal":
        watchdog.end()
    signal.setitimer(signal.ITIMER_REAL, 0)
    return code
