"""``rocmprobe run``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import click

from rocmprobe.cli.base import answering, exhausted, needs_linux
from rocmprobe.model.exit_codes import FINDINGS, INTERNAL, INTERRUPTED, NOTHING, OK, WEDGED
from rocmprobe.model.problems import LEVELS
from rocmprobe.model.results import BadInput, NothingToTest, Results
from rocmprobe.model.results_file import read_results
from rocmprobe.process.signals import ending_in_order, held
from rocmprobe.text.printing import print_stderr

if TYPE_CHECKING:
    from rocmprobe.engine.interpreters import Interpreter
    from rocmprobe.engine.options import RunOptions


@click.command("run")
@click.option(
    "--device",
    default="auto",
    help="auto, cpu, cuda:N or all (auto: AMD, then NVIDIA, then CPU; a card before a GPU in the processor).",
)
@click.option(
    "--level", type=click.Choice(LEVELS), default="quick", show_default=True, help="How much to test."
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
    help="Who calls the libraries: torch, rocmprobe itself, or both where both can (docs/how-it-decides.md).",
)
@click.option(
    "--libraries",
    default="",
    metavar="PLACE",
    help="The libraries that the driver capi loads: environment, rocm, distribution, torch, or a folder.",
)
@click.option(
    "--python",
    multiple=True,
    metavar="[NAME=]PATH",
    help="Test the torch of this interpreter or virtual environment; repeat it to compare several.",
)
@click.option("--problem", "problems", multiple=True, metavar="TEXT", help="Test this convolution instead.")
@click.option(
    "--shapes",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Test the convolutions of a program instead, as recorded by `rocmprobe shapes`.",
)
@click.option(
    "--estimate",
    default="",
    metavar="TEXT",
    help="Estimate the time of a training run: 'images=N epochs=N batch=N' (docs/what-is-measured.md).",
)
@click.option("--note", default="", metavar="TEXT", help="A note that the report shows above its verdict.")
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
    help="Number of worker processes (default and at most: one per device).",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder of this run.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help="Finish a run that died (default: latest).",
)
@click.option("--retry-aborted", is_flag=True, help="With --resume: repeat the cases that were in flight.")
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="results.json of an earlier run: its failures are expected, what passed there must pass.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("findings", "regressions", "never")),
    default="findings",
    show_default=True,
    help="Exit 1 for findings to act on, only for failures that were not expected, or never.",
)
@click.option(
    "--no-redact", is_flag=True, help="Keep names, addresses and the like (docs/reporting-a-bug.md)."
)
@click.option(
    "--verify",
    type=click.Path(path_type=Path),
    metavar="RESULTS",
    help="Run only the configuration that RESULTS recommends; exit 0 if and only if it passes.",
)
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
@answering
@ending_in_order()
def run_command(
    workers: Optional[int], out: Optional[Path], resume: Optional[str], retry_aborted: bool, fail_on: str,
    baseline: Optional[Path], verify: Optional[Path], python: tuple[str, ...], pytest_args: tuple[str, ...],
    **options: Any,
) -> int:  # fmt: skip
    """Run all checks, recommend a configuration, write a report.

    Arguments after -- are passed to pytest.

    \b
    Examples:
      rocmprobe run --level standard
      rocmprobe run --simulate rdna1-rocm52-conv-dead
      rocmprobe run --only convolution --problem conv2d-fp16-n1-c16-i28x28-k32-f3x3-p1
      rocmprobe run --shapes shapes.json
      rocmprobe run --driver capi --libraries /opt/rocm
      rocmprobe run --python stable=~/venvs/torch-2.10 --python nightly=~/venvs/nightly
      rocmprobe run --estimate 'images=329300 batch=4 epochs=50'
      rocmprobe run --baseline last/results.json --fail-on regressions
    """
    if why := needs_linux("run"):
        raise NothingToTest(why)
    from rocmprobe.cli.progress import RunConsole
    from rocmprobe.cli.verify import derived, refuse, verifying
    from rocmprobe.engine import run
    from rocmprobe.process.leftovers import remove_leftovers
    from rocmprobe.text.console import Console

    if os.environ.get("ROCMPROBE_EXEC"):
        raise BadInput("a run cannot be started under `rocmprobe exec`; start it directly")
    if verify:
        refuse(_given())
    if baseline and resume is not None:
        raise BadInput("--baseline: a resumed run keeps its baseline; leave the option out")
    console = Console()
    found = remove_leftovers()
    if found:
        RunConsole().print(f"a run that was killed had left {found} temporary folder(s) behind; removed")
    expected = read_results(verify) if verify else None
    if resume is not None:
        folder = Path(resume or "reports/latest").resolve()
        run.resume(folder, retry_aborted, python, options["libraries"])
    else:
        requested = run_options(options)
        others = _interpreters(python, requested, expected)
        if expected:
            requested = verifying(requested, expected)
        if len(others) > 1:
            folder = run.begin_joined(requested, out, others, baseline).resolve()
        else:
            only = next(iter(others), None)
            folder = run.begin(requested, out, derived(expected), baseline, only).resolve()
    if run.members(folder):
        return _run_joined(folder, workers, pytest_args, fail_on, console)
    return _run_one(folder, workers, pytest_args, fail_on, expected, console)


def _interpreters(
    wanted: Sequence[str], options: RunOptions, expected: Optional[Results]
) -> tuple[Interpreter, ...]:
    """Return the interpreters that ``--python`` names, or that of the results to verify. Raise BadInput."""
    from rocmprobe.engine.interpreters import interpreters, pass_on

    if not wanted and expected and expected.environment:
        wanted = [f"{expected.environment.name}={expected.environment.path_here}"]
    if not wanted:
        return ()
    if expected and len(wanted) > 1:
        raise BadInput("--verify: tests one environment; name one with --python")
    if options.simulate:
        raise BadInput(
            "--python: a simulated machine has a torch of its own; leave out --simulate or --python"
        )
    if options.driver == "capi" or options.libraries:
        raise BadInput(
            "--python compares what PyTorch does in each environment; leave out --driver capi and --libraries"
        )
    found = interpreters(wanted)
    pass_on(found)
    return found


def _run_one(
    folder: Path,
    workers: Optional[int],
    pytest_args: tuple[str, ...],
    fail_on: str,
    expected: Optional[Results],
    console: Any,
) -> int:
    """Run the suites for the run begun in ``folder``, and show the results. Return the exit code."""
    from rocmprobe.cli.github_job import annotate, no_commands
    from rocmprobe.cli.verify import verified
    from rocmprobe.engine import run
    from rocmprobe.report.terminal.ending import render_run

    with no_commands(os.environ):
        code, results = settled(folder, workers, pytest_args, console)
        if results is None:
            return code
        run.point_recommended_at(folder, results)
        files = {name: folder / name for name in ("report.html", "results.json", "junit.xml")}
        render_run(results, files, console)
        holds = expected is None or code == INTERRUPTED or verified(expected, results, console)
    annotate(results, os.environ)
    if code == INTERRUPTED:
        return code
    return _exit_code(results, fail_on, holds if expected else None)


def _run_joined(
    folder: Path, workers: Optional[int], pytest_args: tuple[str, ...], fail_on: str, console: Any
) -> int:
    """Run the suites for each run joined in ``folder``, and show the chosen one. Return the exit code."""
    from rocmprobe.cli.github_job import annotate, no_commands, summarise
    from rocmprobe.engine import run
    from rocmprobe.report.joined import markdown, render_joined, write_joined_report
    from rocmprobe.report.terminal.ending import render_run

    code = OK
    with no_commands(os.environ):
        for each in run.unfinished(folder):
            console.print(f"\nenvironment {each.name}")
            code, _ = settled(each, workers, pytest_args, console)
            if code != OK:
                break
        if code == INTERNAL:
            return code
        with held():
            found, runs = write_joined_report(folder)
        chosen = runs.get(found.chosen)
        if chosen:
            run.point_recommended_at(folder, chosen)
            render_run(chosen, {"report.html": folder / found.chosen / "report.html"}, console)
        render_joined(found, folder, console)
    summarise(markdown(found), os.environ)
    for results in runs.values():
        annotate(results, os.environ)
    if code == INTERRUPTED:
        return code
    codes = [_exit_code(results, fail_on) for results in runs.values()]
    if len(found.runs) < len(found.members) and fail_on == "findings":
        codes.append(FINDINGS)
    # An environment that cannot use the GPU does not matter if another one was chosen.
    return next((each for each in (WEDGED, FINDINGS) if each in codes), OK if chosen else max(codes))


def settled(
    folder: Path,
    workers: Optional[int],
    pytest_args: tuple[str, ...],
    console: Any,
    progress: Optional[Any] = None,
) -> tuple[int, Optional[Results]]:
    """Run the suites for the run begun in ``folder``. Return the exit code, and the results if written.

    ``progress`` is a pytest plugin that shows the progress in place of that of `rocmprobe run`.
    """
    from rocmprobe.engine import run
    from rocmprobe.engine.session import start_server

    processes = run.workers(folder, workers)
    if processes == 1:
        start_server(folder)
    if workers and workers > processes:
        console.print(f"-n {workers} is more than the devices: one process tests each device")
    code, results = _pytest(folder, processes, pytest_args, console, progress)
    if code == INTERNAL:
        return code, None
    if results is None and code == INTERRUPTED and not (folder / "results.json").exists():
        # Interrupted before pytest started its session.
        from rocmprobe.report.write import write_report

        with held():
            results = write_report(folder)
    # Without a session, as for `-- --version`, there may be results of an earlier one.
    return code, results or read_results(folder / "results.json")


def run_options(given: dict[str, Any]) -> RunOptions:
    """Return the options of the command line as those of a run. Raise BadInput if they conflict."""
    from rocmprobe.checks import CHECKS
    from rocmprobe.engine.options import RunOptions
    from rocmprobe.model.shapes import read_shapes

    given = dict(given)
    redact, file = not given.pop("no_redact"), given.pop("shapes")
    shapes = read_shapes(file) if file else None
    if shapes and given["problems"]:
        raise BadInput("--shapes and --problem both select what to test; leave one of them out")
    problems = shapes.texts if shapes else given["problems"]
    options = RunOptions(**{**given, "problems": problems}, shapes=shapes, redact=redact)
    for option, words in (("--only", options.only), ("--skip", options.skip)):
        for word in words:
            if word not in CHECKS and not set(word) & set("/*?["):
                raise BadInput(
                    f"{option}: no check {word!r} and no pattern over case ids; there are {', '.join(CHECKS)}"
                )
    if options.estimate and options.driver == "capi":
        raise BadInput("--estimate: needs PyTorch to train networks; leave out --driver capi")
    return options


def _exit_code(results: Results, fail_on: str, holds: Optional[bool] = None) -> int:
    """Return the exit code. ``holds`` is the result of ``--verify``, or None in any other run."""
    from rocmprobe.judge.comparison.changes import worse
    from rocmprobe.judge.findings.diagnose import act_on

    if any(outcome.cause == "gpu-wedged" for outcome in results.outcomes):
        return WEDGED
    if results.recommendation and results.recommendation.verdict == "gpu-not-tested":
        return NOTHING
    policies = {"findings": act_on, "regressions": worse, "never": lambda _: False}
    bad = policies[fail_on](results) if holds is None else not holds
    return FINDINGS if bad else OK


def _given() -> set[str]:
    """Return the options given on the command line."""
    context = click.get_current_context()
    return {
        option.opts[-1]
        for option in context.command.params
        if option.name and context.get_parameter_source(option.name) is click.core.ParameterSource.COMMANDLINE
    }


class _Written:
    """A pytest plugin that keeps the results of a session, or the resource of the system that it lacked."""

    results: Optional[Results] = None
    exhausted: str = ""

    def pytest_internalerror(self, excinfo: Any) -> Optional[bool]:
        """Keep pytest from printing a traceback if a resource ran out."""
        self.exhausted = exhausted(excinfo.value)
        return True if self.exhausted else None

    def pytest_unconfigure(self, config: Any) -> None:
        from rocmprobe.pytest_plugin import RESULTS

        self.results = config.stash.get(RESULTS, None)


def _pytest(
    folder: Path, workers: int, extra: tuple[str, ...], console: Any, progress: Optional[Any]
) -> tuple[int, Optional[Results]]:
    """Run the suites for the run begun in ``folder``, without the user's pytest configuration.

    Return the exit code and the results, or None if the session did not begin or could not write them.
    """
    import pytest

    from rocmprobe.cli.progress import Progress
    from rocmprobe.pytest_plugin import suites_folder

    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        os.environ.pop(name, None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # xdist's workers import from the working directory first. The user's may hold a random.py, or be gone.
    os.chdir(folder)
    suites = str(suites_folder())
    arguments = [
        "-c", str(Path(__file__).parents[1] / "data" / "suites.ini"),
        "--rootdir", suites, "--confcutdir", suites,
        "-p", "rocmprobe.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:terminal",
        "--rocmprobe-run", str(folder),
    ]  # fmt: skip
    if workers > 1:
        arguments += ["-p", "xdist.plugin", "-n", str(workers)]
    written = _Written()
    code = pytest.main([*arguments, *extra, suites], plugins=[progress or Progress(console, folder), written])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return OK, written.results
    if code == pytest.ExitCode.INTERRUPTED:
        return INTERRUPTED, written.results
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise BadInput("no check is selected; widen --only, --skip or --settings (see `rocmprobe list`)")
    reason = written.exhausted or f"pytest ended with {code!r}"
    print_stderr(f"{reason}; the journal in {folder} holds the results so far")
    return INTERNAL, None
