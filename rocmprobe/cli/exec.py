"""``rocmprobe exec``: runs the user's program under the recommended configuration."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Optional

import click

from rocmprobe.cli.base import exit_code_command, needs_linux
from rocmprobe.model.results import BadInput
from rocmprobe.text.printing import print_stderr

#: The exit of a program that :func:`rocmprobe.exec.runner.run` ran, or of a shell, as the causes name it.
_ENDS = {-6: "abort", -11: "segv", 128 + 6: "abort", 128 + 11: "segv"}
#: Number of bytes from the end of the program's stderr that --explain reads.
_KEPT = 1 << 23
_PROGRAM = {"allow_interspersed_args": False}


@click.command("exec", context_settings=_PROGRAM)
@click.option("--profile", type=click.Path(path_type=Path), metavar="RESULTS",
              help="Folder or results.json of a run (default: reports/recommended).")  # fmt: skip
@click.option("--setting", default="", metavar="NAME",
              help="Use this setting, not the recommended one. It needs no run.")  # fmt: skip
@click.option("--simulated", is_flag=True, help="Also accept results of a simulated machine.")
@click.option("--bypass", type=click.Choice(("auto", "always", "never")), default="auto", show_default=True,
              help="When to install the bypass: if recommended, on every device, or never.")  # fmt: skip
@click.option("--explain", "explains", is_flag=True,
              help="If the program fails, explain why, from its stderr and this machine.")  # fmt: skip
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@exit_code_command
def exec_command(
    profile: Optional[Path],
    setting: str,
    simulated: bool,
    bypass: str,
    explains: bool,
    command: tuple[str, ...],
) -> int:
    """Run your program, unchanged, with the recommended configuration.

    The exit code is that of the program, or 2 if nothing was run (docs/training-with-the-bypass.md). With
    --explain, the program is a child process of rocmprobe and its stderr is a pipe. A signal that ends the
    program then ends rocmprobe, too.

    \b
    Examples:
      rocmprobe exec -- python train.py --epochs 3
      rocmprobe exec --explain -- python train.py
      rocmprobe exec --setting vendor-off -- python train.py
      rocmprobe exec --bypass always -- torchrun --nproc_per_node 2 train.py
    """
    if why := needs_linux("exec"):
        raise BadInput(why)
    from rocmprobe.exec.command import find_program, replace_process, with_configuration
    from rocmprobe.exec.conditions import conditions

    under = conditions(profile, bypass, setting, simulated)
    program = find_program(command, os.environ)
    environ = with_configuration(under.environment(os.environ))
    with suppress(BrokenPipeError):
        print_stderr(f"running under {under.words}")
        if removed := [name for name in os.environ if name not in environ]:
            print_stderr(f"not set in the program, because trials ran without: {', '.join(removed)}")
    # If the caller closed stderr, the descriptor is rocmprobe's own, and nobody could read an explanation.
    if not explains or not os.get_inheritable(2):
        replace_process(program, command, environ)
    from rocmprobe.exec.runner import exit_like, run

    printed = bytearray()

    def keep(piece: bytes) -> None:
        printed.extend(piece)
        if len(printed) > 2 * _KEPT:
            del printed[:-_KEPT]

    code = run(program, command, environ, keep)
    if code:
        with suppress(BrokenPipeError):
            _explain(bytes(printed[-_KEPT:]), code, environ)
    return exit_like(code)


def _explain(printed: bytes, code: int, environ: Mapping[str, str]) -> None:
    from rocmprobe.cli.explain import facts_of_this_machine, without_identifiers
    from rocmprobe.explain.explain import explain
    from rocmprobe.explain.facts import Facts, facts_in, merge_and_derive, over, variables_in
    from rocmprobe.report.terminal.explanation import render_explanation
    from rocmprobe.text.console import Console
    from rocmprobe.text.log import read_log

    log = read_log(io.BytesIO(printed))
    given = variables_in(f"{name}={value}" for name, value in environ.items())
    here = over(Facts(env=given, exit=_ENDS.get(code, "exception")), facts_of_this_machine())
    answer = without_identifiers(explain(log, merge_and_derive(here, facts_in(log))))
    how = f"exit code {code}" if code > 0 else signal.Signals(-code).name
    print_stderr(f"the program ended with {how}")
    render_explanation(answer, Console(stderr=True))
