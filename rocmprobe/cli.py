"""The command line. Thin: options in, one call, exit code out (the codes are in docs/results.md)."""

from __future__ import annotations

import functools
import os
import shlex
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import click

from rocmprobe import __version__
from rocmprobe.model import BadInput, NothingToTest, Results, read_results, to_json
from rocmprobe.problems import LEVELS
from rocmprobe.runner.journal import CannotWrite

OK, FINDINGS, USAGE, NOTHING, WEDGED, INTERNAL = range(6)
#: What shells report for a program that Ctrl-C ended; SIGTERM ends a run in the same way.
INTERRUPTED = 130


def _answering(command: Callable[..., int]) -> Callable[..., None]:
    """Turn what a command returns or raises into an exit code and one clear line."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        try:
            sys.exit(command(*args, **options))
        except BadInput as error:
            click.echo(f"rocmprobe: {error}", err=True)
            sys.exit(USAGE)
        except NothingToTest as error:
            click.echo(f"rocmprobe: {error}", err=True)
            sys.exit(NOTHING)
        except KeyboardInterrupt:
            click.echo("rocmprobe: interrupted", err=True)
            sys.exit(INTERRUPTED)
        except CannotWrite as error:
            click.echo(f"rocmprobe: {error}", err=True)
            sys.exit(INTERNAL)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception:
            # Python's own exit code for this would be that of findings.
            traceback.print_exc()
            sys.exit(INTERNAL)

    return run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rocmprobe")
def main() -> None:
    """Find out why convolution fails on this GPU, and which configuration works.

    \b
    Example:
      rocmprobe run
    """


@main.command("run")
@click.option("--device", default="auto", help="auto, cpu, cuda:N or all (auto: AMD, then NVIDIA, then CPU).")
@click.option(
    "--level", type=click.Choice(LEVELS), default="quick", show_default=True, help="How much to ask."
)
@click.option(
    "--purpose", type=click.Choice(("training", "inference")), default="training", show_default=True
)
@click.option("--settings", default="default", help="default, all, or names separated by commas.")
@click.option(
    "--driver",
    type=click.Choice(("auto", "torch", "capi")),
    default="auto",
    show_default=True,
    help="Who calls the libraries: torch, rocmprobe itself, or both where both can (docs/drivers.md).",
)
@click.option(
    "--libraries",
    default="",
    metavar="PLACE",
    help="Which copy capi calls: environment, rocm, distribution, torch, or a folder.",
)
@click.option(
    "--problem", "problems", multiple=True, metavar="TEXT", help="Ask about this convolution instead."
)
@click.option(
    "--shapes",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Ask about the convolutions of a program instead, as `rocmprobe shapes` recorded them.",
)
@click.option(
    "--estimate",
    default="",
    metavar="TEXT",
    help="Time of a training: 'images=N epochs=N batch=N' (docs/models.md).",
)
@click.option("--only", multiple=True, metavar="ID", help="Only these checks, or case ids by pattern.")
@click.option("--skip", multiple=True, metavar="ID", help="Leave these out.")
@click.option(
    "--simulate", metavar="MACHINE", help="A simulated machine (rocmprobe list machines), or its TOML file."
)
@click.option(
    "-n",
    "workers",
    type=click.IntRange(0),
    metavar="WORKERS",
    help="Processes that ask (default: one for each GPU, as far as the cores go).",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder of this run.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help="Finish a run that died (default: latest).",
)
@click.option("--retry-aborted", is_flag=True, help="With --resume: ask again what was in flight.")
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="results.json of a former run: what failed there is expected, what worked there must work.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("findings", "regressions", "never")),
    default="findings",
    show_default=True,
    help="Exit 1 for findings to act on, only for failures that were not expected, or never.",
)
@click.option("--no-redact", is_flag=True, help="Keep names, addresses and the like (docs/redaction.md).")
@click.option(
    "--verify",
    type=click.Path(path_type=Path),
    metavar="RESULTS",
    help="Run only the configuration that RESULTS recommends; exit 0 if and only if it passes.",
)
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
@_answering
def run_command(
    workers: Optional[int], out: Optional[Path], resume: Optional[str], retry_aborted: bool, fail_on: str,
    baseline: Optional[Path], verify: Optional[Path], pytest_args: tuple[str, ...], **options: Any,
) -> int:  # fmt: skip
    """Ask the machine everything, recommend a configuration, write a report.

    What follows -- goes to pytest.

    \b
    Examples:
      rocmprobe run --level standard
      rocmprobe run --simulate rdna1-rocm52-conv-dead
      rocmprobe run --only convolution --problem conv2d-fp16-n1-c16-i28x28-k32-f3x3-p1
      rocmprobe run --shapes shapes.json
      rocmprobe run --driver capi --libraries /opt/rocm
      rocmprobe run --estimate 'images=329300 batch=4 epochs=50'
      rocmprobe run --baseline last/results.json --fail-on regressions
    """
    from rich.console import Console

    from rocmprobe.github_job import no_commands, tell
    from rocmprobe.report.terminal import render_run
    from rocmprobe.runner import run
    from rocmprobe.runner.leftovers import remove_leftovers
    from rocmprobe.verify import derived, options_of, verified

    if os.environ.get("ROCMPROBE_EXEC"):
        raise BadInput("a run asks the machine as it is; start it without `rocmprobe exec`")
    if baseline and verify:
        raise BadInput("--baseline and --verify: each says what is expected; leave one of them out")
    if baseline and resume is not None:
        raise BadInput("--baseline: a run that is taken up keeps the one it began with; leave it out")
    console = Console()
    found = remove_leftovers()
    if found:
        console.print(f"a run that was killed had left {found} temporary folder(s) behind; removed")
    expected = read_results(verify) if verify else None
    if resume is not None:
        folder = Path(resume or "reports/latest").resolve()
        run.resume(folder, retry_aborted, options["libraries"])
    else:
        folder = run.begin(options_of(expected, options), out, derived(expected), baseline).resolve()
    with no_commands(os.environ):
        code = _pytest(folder, run.workers(folder) if workers is None else workers, pytest_args, console)
        if code == INTERNAL:
            return code
        results = read_results(folder / "results.json")
        render_run(
            results, {name: folder / name for name in ("report.html", "results.json", "junit.xml")}, console
        )
        holds = expected is None or code == INTERRUPTED or verified(expected, results, console)
    tell(results, os.environ)
    if code == INTERRUPTED:
        return code
    if expected:
        return OK if holds else FINDINGS
    return _exit_code(results, fail_on)


def _exit_code(results: Results, fail_on: str) -> int:
    from rocmprobe.judge.changes import worse
    from rocmprobe.judge.diagnose import act_on

    if any(outcome.cause == "gpu-wedged" for outcome in results.outcomes):
        return WEDGED
    policies = {"findings": act_on, "regressions": worse, "never": lambda _: False}
    return FINDINGS if policies[fail_on](results) else OK


def _pytest(folder: Path, workers: int, extra: tuple[str, ...], console: Any) -> int:
    """Run the suites for the run begun in ``folder``, out of reach of the user's pytest configuration."""
    import pytest

    from rocmprobe.progress import Progress
    from rocmprobe.pytest_plugin import suites_folder

    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        os.environ.pop(name, None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # xdist's workers import from the working directory first; the user's may hold a random.py, or be gone.
    os.chdir(folder)
    suites = str(suites_folder())
    arguments = [
        "-c", str(Path(__file__).with_name("data") / "suites.ini"),
        "--rootdir", suites, "--confcutdir", suites,
        "-p", "rocmprobe.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:terminal",
        "--rocmprobe-run", str(folder),
    ]  # fmt: skip
    if workers > 1:
        arguments += ["-p", "xdist.plugin", "-n", str(workers)]
    code = pytest.main([*arguments, *extra, suites], plugins=[Progress(console, folder)])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return OK
    if code == pytest.ExitCode.INTERRUPTED:
        return INTERRUPTED
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise BadInput("nothing is left to ask; widen --only, --skip or --settings (see `rocmprobe list`)")
    click.echo(
        f"rocmprobe: pytest ended with {code!r}; the journal in {folder} holds what was gathered", err=True
    )
    return INTERNAL


@main.command("detect")
@click.option("--json", "as_json", is_flag=True, help="All facts as JSON.")
@click.option("--root", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path("/"),
              help="Read a recorded / tree.")  # fmt: skip
@click.option("--deep", is_flag=True, help="Ask torch, too, in a process of its own; takes seconds.")
@click.option("--no-redact", is_flag=True, help="Keep names, addresses and the like (docs/redaction.md).")
@_answering
def detect_command(as_json: bool, root: Path, deep: bool, no_redact: bool) -> int:
    """Facts about this machine, each with its source, and what they tell. Runs no kernel, needs no torch.

    Exits 3 where there is no AMD GPU.

    \b
    Examples:
      rocmprobe detect --json
      rocmprobe detect --deep
    """
    from rocmprobe.detect import ask_torch, detect
    from rocmprobe.judge.machine import machine_findings
    from rocmprobe.model import Machine, from_json
    from rocmprobe.redact import census, redacted

    if deep and root != Path("/"):
        raise BadInput("--deep asks the torch of this machine; leave out --root, or --deep")
    machine = detect(root)
    if deep:
        machine = replace(machine, facts={**machine.facts, **ask_torch()})
    if not no_redact:
        machine = from_json(Machine, redacted(to_json(machine)))
    findings = machine_findings(machine)
    if as_json:
        import json

        told = {**to_json(machine), "findings": [to_json(finding) for finding in findings]}
        click.echo(json.dumps({**told, "redacted": {} if no_redact else census(told)}, indent=1))
    else:
        from rich.console import Console

        from rocmprobe.report.glance import render_machine

        render_machine(machine, findings, Console())
    return OK if machine.amd_gpus else NOTHING


@main.command("explain")
@click.argument("log", required=False, metavar="[FILE|-]")
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON (docs/explain.md).")
@click.option("--facts", type=click.Path(path_type=Path), metavar="FILE",
              help="JSON with what is known besides, or what `rocmprobe detect --json` printed.")  # fmt: skip
@click.option("--fact", "told", multiple=True, metavar="NAME=VALUE",
              help="One such: gpu, true_gfx, effective_gfx, rocm, torch, os, exit, a variable.")  # fmt: skip
@click.option("--no-redact", is_flag=True, help="Keep names, addresses and the like (docs/redaction.md).")
@_answering
def explain_command(
    log: Optional[str], as_json: bool, facts: Optional[Path], told: tuple[str, ...], no_redact: bool
) -> int:
    """Say why a program failed, from the log that it printed, or from the results.json of a run.

    \b
    Examples:
      python train.py 2>&1 | rocmprobe explain
      rocmprobe explain log.txt --fact 'gpu=RX 5700 XT' --fact HSA_OVERRIDE_GFX_VERSION=10.3.0
    """
    from rocmprobe import explain_command as explain

    answer = explain.explained(log, explain.given_facts(facts, told))
    if not no_redact:
        answer = explain.without_identifiers(answer)
    if as_json:
        import json

        click.echo(json.dumps(explain.as_data(answer), indent=1))
    else:
        from rich.console import Console

        from rocmprobe.report.explanation import render_explanation

        render_explanation(answer, Console())
    return OK


@main.command("report")
@click.argument("results", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(("html", "md", "json", "junit", "issue")), default="html",
    show_default=True,
)  # fmt: skip
@click.option("--for", "tracker", type=click.Choice(("miopen", "rocm", "pytorch", "ultralytics")),
              help="With --format issue: whose form is filled in (default: miopen).")  # fmt: skip
@click.option("-o", "output", type=click.Path(path_type=Path),
              help="Where to (default: beside the results; md and issue: the terminal).")  # fmt: skip
@_answering
def report_command(results: Path, form: str, tracker: Optional[str], output: Optional[Path]) -> int:
    """Make the report of a run again, from its results.json or from the folder of a run that died.

    An issue is one failure, the gravest, in the fields of a tracker's form (docs/attaching.md).

    \b
    Examples:
      rocmprobe report reports/latest/results.json -o report.html
      rocmprobe report reports/latest/results.json --format issue --for pytorch
    """
    from rocmprobe.report import finish

    if tracker and form != "issue":
        raise BadInput(f"--for {tracker} goes with --format issue; add it, or leave --for out")
    try:
        if form in finish.TEXTS:
            text = finish.told(results, form, tracker or "miopen")
            if output is None:
                click.echo(text, nl=False)
                return OK
            path = output
            path.write_text(text, "utf-8")
        else:
            path = finish.paper(results, form, output)
    except OSError as error:
        raise BadInput(f"{error.filename or output}: {error.strerror}; name another file with -o") from error
    click.echo(path)
    return OK


@main.command("env")
@click.argument("results", type=click.Path(path_type=Path), default=Path("reports/latest/results.json"))
@click.option("--shell", type=click.Choice(("sh", "fish", "dotenv", "json")), default="sh", show_default=True)
@_answering
def env_command(results: Path, shell: str) -> int:
    """The recommended configuration as variables; Python lines that it needs besides go to stderr.

    Exits 1 where no configuration is recommended.

    \b
    Example:
      eval "$(rocmprobe env)"
    """
    import json

    found = read_results(results)
    if found.recommendation is None or found.recommendation.configuration.setting is None:
        click.echo("rocmprobe: these results recommend no configuration", err=True)
        return FINDINGS
    configuration = found.recommendation.configuration
    env = dict(configuration.env)
    if found.simulated:
        click.echo(f"rocmprobe: for the simulated machine {found.simulated}, not this one", err=True)
    forms = {"sh": "export {0}={1}", "fish": "set -gx {0} {1}", "dotenv": "{0}={1}"}
    if shell == "json":
        click.echo(json.dumps(env, indent=1))
    else:
        for name, value in env.items():
            click.echo(forms[shell].format(name, shlex.quote(value)))
    if configuration.code:
        click.echo(f"rocmprobe: the program needs these lines, too:\n{configuration.code}", err=True)
    return OK


_PROGRAM = {"allow_interspersed_args": False}


@main.command("exec", context_settings=_PROGRAM)
@click.option("--profile", type=click.Path(path_type=Path), metavar="RESULTS",
              help="Whose recommendation (default: reports/latest/results.json).")  # fmt: skip
@click.option("--bypass", type=click.Choice(("auto", "always", "never")), default="auto", show_default=True,
              help="As recommended, on every device in any case, or not.")  # fmt: skip
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@_answering
def exec_command(profile: Optional[Path], bypass: str, command: tuple[str, ...]) -> int:
    """Run any Python program, as it is, under the recommended configuration (docs/exec.md).

    The exit code is the program's own; 2 where nothing was run.

    \b
    Examples:
      rocmprobe exec -- python train.py --epochs 3
      rocmprobe exec --bypass always -- torchrun --nproc_per_node 2 train.py
    """
    from rocmprobe.launch.command import become, checked, environment
    from rocmprobe.launch.conditions import conditions
    from rocmprobe.report.text import one_line

    under = conditions(profile, bypass)
    program = checked(command, os.environ)
    environ = environment(os.environ, under.as_variables())
    click.echo(f"rocmprobe: running under {one_line(under.words, 1000)}", err=True)
    become(program, command, environ)


@main.command("shapes", context_settings=_PROGRAM)
@click.option("-o", "output", type=click.Path(path_type=Path), required=True, metavar="FILE")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@_answering
def shapes_command(output: Path, command: tuple[str, ...]) -> int:
    """Record the distinct convolution problems that a program runs, in all its processes (docs/exec.md).

    The exit code is the program's own; 2 where nothing was run.

    \b
    Example:
      rocmprobe shapes -o shapes.json -- python train.py
    """
    from rocmprobe.launch.recording import record

    try:
        code, found = record(command, output)
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror, str(output)) from error
    click.echo(f"rocmprobe: {found or 'no'} problem(s) in {output}", err=True)
    return code


@main.command("repro")
@click.argument("results", type=click.Path(path_type=Path))
@click.argument("case")
@_answering
def repro_command(results: Path, case: str) -> int:
    """A torch script without rocmprobe that asks again what one outcome answers, to attach to a bug report.

    CASE is the id of an outcome, or a part of it that no other has. After the script stand, as comments, what
    the run found and the command line for MIOpenDriver.

    \b
    Example:
      rocmprobe repro reports/latest/results.json default/gemm/float32 > repro.py
    """
    from rocmprobe.report.repro import reproduction

    click.echo(reproduction(read_results(results), case))
    return OK


@main.command("list")
@click.argument(
    "what",
    type=click.Choice(
        ("settings", "solvers", "problems", "checks", "machines", "variables", "gpus", "causes")
    ),
)
@_answering
def list_command(what: str) -> int:
    """Print one of the tables that rocmprobe works from.

    \b
    Example:
      rocmprobe list settings
    """
    from rich.console import Console

    from rocmprobe.report.tables import TABLES

    Console().print(TABLES[what]())
    return OK
