"""Commands about logs and the results of runs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Optional

import click

from rocmprobe.cli.base import answering, main
from rocmprobe.model.exit_codes import FINDINGS, OK
from rocmprobe.model.results import BadInput, read_results, write_whole
from rocmprobe.text.printing import print_stderr, print_stderr_lines, say, say_json


@main.command("explain")
@click.argument("log", required=False, metavar="[FILE|-]")
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON (docs/troubleshooting.md).")
@click.option("--facts", type=click.Path(path_type=Path), metavar="FILE",
              help="JSON file of further facts, or the output of `rocmprobe detect --json`.")  # fmt: skip
@click.option("--fact", "given", multiple=True, metavar="NAME=VALUE",
              help="A single fact: gpu, true_gfx, effective_gfx, rocm, torch, torch_targets, "
              "rocblas_targets, os, first_gpu, exit, a variable.")  # fmt: skip
@click.option(
    "--no-redact", is_flag=True, help="Keep names, addresses and the like (docs/reporting-a-bug.md)."
)
@answering
def explain_command(
    log: Optional[str], as_json: bool, facts: Optional[Path], given: tuple[str, ...], no_redact: bool
) -> int:
    """Say why a program failed, from the log that it printed, or from the results.json of a run.

    \b
    Examples:
      python train.py 2>&1 | rocmprobe explain
      rocmprobe explain log.txt --fact 'gpu=RX 5700 XT' --fact HSA_OVERRIDE_GFX_VERSION=10.3.0
    """
    from rocmprobe.cli import explain

    answer = explain.explained(log, explain.given_facts(facts, given))
    if not no_redact:
        answer = explain.without_identifiers(answer)
    if as_json:
        say_json(explain.as_data(answer))
    else:
        from rocmprobe.cli.github_job import no_commands
        from rocmprobe.report.terminal.explanation import render_explanation
        from rocmprobe.text.console import Console

        with no_commands(os.environ):
            render_explanation(answer, Console())
    return OK


@main.command("report")
@click.argument("results", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(("html", "md", "json", "junit", "issue")), default="html",
    show_default=True,
)  # fmt: skip
@click.option("--for", "tracker", type=click.Choice(("miopen", "rocm", "pytorch", "ultralytics")),
              help="With --format issue: the tracker whose form to fill in (default: miopen).")  # fmt: skip
@click.option("-o", "output", type=click.Path(path_type=Path),
              help="Output file (default: beside the results; md and issue: the terminal).")  # fmt: skip
@answering
def report_command(results: Path, form: str, tracker: Optional[str], output: Optional[Path]) -> int:
    """Write the report of a run again, from its results.json or from the folder of a run that died.

    The issue describes the most severe failure in the fields of a tracker's form (docs/reporting-a-bug.md).

    \b
    Examples:
      rocmprobe report reports/latest/results.json -o report.html
      rocmprobe report reports/latest/results.json --format issue --for pytorch
    """
    from rocmprobe.cli.github_job import no_commands
    from rocmprobe.report import joined, write

    if tracker and form != "issue":
        raise BadInput(f"--for {tracker} goes with --format issue; add it, or leave --for out")
    try:
        if form in write.TEXTS:
            text = joined.as_text(results, form) or write.as_text(results, form, tracker or "miopen")
            if output is None:
                with no_commands(os.environ):
                    say(text, end="")
                return OK
            path = output
            write_whole(text.encode(), path)
        else:
            path = joined.write_page(results, form, output) or write.write_document(results, form, output)
    except OSError as error:
        if error.filename is None:  # standard output
            raise
        raise BadInput(f"{error.filename}: {error.strerror}; name another file with -o") from error
    say(path)
    return OK


@main.command("compare")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON (docs/ci.md).")
@answering
def compare_command(old: Path, new: Path, as_json: bool) -> int:
    """Say what changed from one run to another: states, environment, time and memory beyond the noise.

    OLD and NEW are results.json files, or folders of runs. Exits 1 for a regression (what worked fails, or
    takes clearly longer or more memory), and where nothing can be compared (docs/ci.md).

    \b
    Example:
      rocmprobe compare last/results.json reports/latest/results.json
    """
    from rocmprobe.cli.compare import answer

    return FINDINGS if answer(old, new, as_json, os.environ) else OK


@main.command("env")
@click.argument("results", required=False, type=click.Path(path_type=Path))
@click.option(
    "--shell", type=click.Choice(("sh", "fish", "powershell", "dotenv", "json")), default="sh",
    show_default=True,
)  # fmt: skip
@click.option("--setting", default="", metavar="NAME",
              help="Another setting of the results than the recommended one.")  # fmt: skip
@click.option("--simulated", is_flag=True, help="Use results of a simulated machine, too.")
@answering
def env_command(results: Optional[Path], shell: str, setting: str, simulated: bool) -> int:
    """Print the recommended configuration as variables; Python lines that it also needs go to stderr.

    Without RESULTS it is that of reports/recommended, the last complete run on this machine. Exits 1 where
    no configuration is recommended.

    \b
    Examples:
      eval "$(rocmprobe env)"
      rocmprobe env --setting vendor-off
    """
    from rocmprobe.judge.recommendation.configuration import needs_clean_databases, unusable
    from rocmprobe.launch.choice import choose

    chosen = choose(results, setting, simulated)
    configuration, environment = chosen.configuration, chosen.results.environment
    if configuration.setting is None:
        print_stderr(f"these results recommend no configuration: {chosen.why_none}")
        return FINDINGS
    refused = unusable(configuration)
    if refused:
        place = f"{chosen.path}: {'settings' if setting else 'recommendation/configuration'}"
        raise BadInput(f"{place}/{refused}; the file is damaged, run again")
    env = dict(configuration.env)
    if chosen.results.simulated:
        print_stderr(f"for the simulated machine {chosen.results.simulated}, not this one")
    if environment:
        print_stderr(f"for the Python environment {environment.name}: {environment.path_here}")
    if any(
        needs_clean_databases(chosen.results, each)
        for each in chosen.results.settings
        if each.name == configuration.setting
    ):
        print_stderr("your own databases and caches fail; `rocmprobe exec` uses clean ones")
    forms = {
        "sh": "export {0}={1}", "fish": "set -gx {0} {1}", "dotenv": "{0}={1}",
        "powershell": "$env:{0} = {1}",
    }  # fmt: skip
    if shell == "json":
        say_json(env)
    else:
        for name, value in env.items():
            # PowerShell doubles a quote where a POSIX shell ends the text.
            doubled = "'" + value.replace("'", "''") + "'"
            say(forms[shell].format(name, doubled if shell == "powershell" else shlex.quote(value)))
    if configuration.code:
        print_stderr("the program also needs these lines:")
        print_stderr_lines(configuration.code)
    return OK


@main.command("repro")
@click.argument("results", type=click.Path(path_type=Path))
@click.argument("case")
@answering
def repro_command(results: Path, case: str) -> int:
    """Print a torch script that repeats one case without rocmprobe, to attach to a bug report.

    CASE is the id of an outcome, or a part of it that no other has. Comments at the end of the script give
    the result of the run and the command line for MIOpenDriver.

    \b
    Example:
      rocmprobe repro reports/latest/results.json default/gemm/float32 > repro.py
    """
    from rocmprobe.report.repro.script import reproduction

    say(reproduction(read_results(results), case))
    return OK
