"""``rocmprobe run``: tests a GPU and writes a report."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Optional

import click

from rocmprobe.cli.base import exhausted, exit_code_command, needs_linux
from rocmprobe.cli.help import GroupedCommand, option_group
from rocmprobe.model.exit_codes import FINDINGS, INTERNAL, INTERRUPTED, NOTHING, OK, USAGE, WEDGED
from rocmprobe.model.problems import LEVELS
from rocmprobe.model.results import BadInput, NothingToTest, Results
from rocmprobe.model.results_file import read_results
from rocmprobe.process.signals import delayed_signals, ending_in_order
from rocmprobe.text.plain_text import quoted
from rocmprobe.text.printing import print_stderr
from rocmprobe.text.suggestions import did_you_mean

if TYPE_CHECKING:
    from rocmprobe.judge.summary import Summary
    from rocmprobe.model.options import RunOptions
    from rocmprobe.text.console import Console


@dataclass(frozen=True)
class Display:
    """Output options of a run."""

    console: Console
    verbose: bool = False
    quiet: bool = False
    opens: bool = False


_tests = option_group("What to test")
_results = option_group("Results")
_ci = option_group("CI")
_advanced = option_group("Advanced")


class _RunCommand(GroupedCommand):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Options after a program's name are the program's, so do not parse them.
        if args and not args[0].startswith("-"):
            _refuse(args, ctx)
        separated = "--" in args
        rest = super().parse_args(ctx, args)
        if not separated and ctx.params["pytest_args"]:
            _refuse(list(ctx.params["pytest_args"]), ctx)
        return rest


def _refuse(words: list[str], ctx: click.Context) -> NoReturn:
    """End the command because of arguments that are neither options nor follow ``--``."""
    print_stderr(_unexpected(words))
    ctx.exit(USAGE)


def _unexpected(words: list[str]) -> str:
    if words[0].endswith(".py") or shutil.which(words[0]):
        program = shlex.join(["python", *words] if words[0].endswith(".py") else words)
        return f"run tests the GPU and starts no program; did you mean `rocmprobe exec -- {program}`?"
    return f"unexpected argument {quoted(words[0])}; arguments for pytest follow --"


@click.command("run", cls=_RunCommand)
@_tests("--level", type=click.Choice(LEVELS), default="quick", show_default=True, help="How much to test.")
@_tests(
    "--device",
    default="auto",
    help="auto, cpu, cuda:N or all (auto: an AMD card, else the CPU).",
)
@_tests("--purpose", type=click.Choice(("training", "inference")), default="training", show_default=True)
@_tests("--settings", default="default", help="default, all, or names separated by commas.")
@_tests("--only", multiple=True, metavar="ID", help="Only these checks, or case ids that match a pattern.")
@_tests("--skip", multiple=True, metavar="ID", help="All checks except these.")
@_tests(
    "--minutes",
    type=click.FloatRange(0.05, 10080),
    metavar="MINUTES",
    help="Duration of the check soak under each setting (default: 2).",
)
@_tests("--problem", "problems", multiple=True, metavar="TEXT", help="Test this convolution instead.")
@_tests(
    "--suite",
    type=click.Path(resolve_path=True, path_type=Path),
    metavar="FILE",
    help="Also run the tests of your own suite (docs/contributing.md#an-own-check).",
)
@_tests(
    "--shapes",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The convolutions of your program, recorded by `rocmprobe shapes`.",
)
@_tests(
    "--verify",
    type=click.Path(path_type=Path),
    metavar="RESULTS",
    help="Only the configuration that RESULTS (a run's folder or file) recommends. Exit 0 if it passes.",
)
@_tests(
    "--simulate", metavar="MACHINE", help="A simulated machine (`rocmprobe list machines`), or its TOML file."
)
@_results("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder of this run.")
@_results("--open", "opens", is_flag=True, help="Open the report in the browser at the end.")
@_results("--note", default="", metavar="TEXT", help="A note that the report shows above its verdict.")
@_results(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help="Continue an interrupted run (default: the latest).",
)
@_results("-v", "--verbose", is_flag=True, help="Print a line for each case.")
@_results("-q", "--quiet", is_flag=True, help="Print only the verdict.")
@_ci(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="RESULTS",
    help="An earlier run: its failures are expected, and its passes must pass again.",
)
@_ci(
    "--fail-on",
    type=click.Choice(("findings", "regressions", "never")),
    default="findings",
    show_default=True,
    help="When to exit 1: for findings to act on, only for unexpected failures, or never.",
)
@_advanced(
    "-n",
    "workers",
    type=click.IntRange(0),
    metavar="WORKERS",
    help="Number of worker processes (default and at most: one per device).",
)
@_advanced(
    "--retry-aborted",
    is_flag=True,
    help="With --resume: repeat the cases that were running when the run ended.",
)
@_advanced("--force", is_flag=True, help="With --resume: continue although the machine or rocmprobe changed.")
@_advanced("--no-redact", is_flag=True, help="Keep names, addresses and the like (docs/reporting-a-bug.md).")
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
@exit_code_command
@ending_in_order()
def run_command(
    workers: Optional[int], out: Optional[Path], resume: Optional[str], retry_aborted: bool, force: bool,
    fail_on: str,
    baseline: Optional[Path], verify: Optional[Path], suite: Optional[Path], pytest_args: tuple[str, ...],
    opens: bool, verbose: bool, quiet: bool, **options: Any,
) -> int:  # fmt: skip
    """Test this GPU, recommend a configuration, write a report.

    Arguments after -- are passed to pytest.

    \b
    Examples:
      rocmprobe run --level standard
      rocmprobe run --simulate rdna1-rocm52-conv-dead
      rocmprobe run --only convolution --problem conv2d-fp16-n1-c16-i28x28-k32-f3x3-p1
      rocmprobe run --shapes shapes.json
      rocmprobe run --only soak --minutes 60
      rocmprobe run --baseline last/results.json --fail-on regressions
    """
    if why := needs_linux("run"):
        raise NothingToTest(why)
    from rocmprobe.cli.verify import refuse, verification_options
    from rocmprobe.engine import run
    from rocmprobe.engine.journal import RunJournal
    from rocmprobe.knowledge.layers import chosen_setting
    from rocmprobe.process.leftovers import remove_leftovers
    from rocmprobe.process.limits import check_limits
    from rocmprobe.text.console import Console

    if os.environ.get("ROCMPROBE_EXEC"):
        raise BadInput("a run cannot be started under `rocmprobe exec`; start it directly")
    if verify:
        refuse(_given())
    if suite and not suite.is_file():
        raise BadInput(f"--suite: {suite} is not a file")
    if baseline and resume is not None:
        raise BadInput("--baseline: a resumed run keeps its baseline; leave this option out")
    if force and resume is None:
        raise BadInput("--force: continues a run on a changed machine; add --resume, or leave it out")
    if verbose and quiet:
        raise BadInput("-v and -q contradict each other; leave one out")
    display = Display(Console(), verbose, quiet, opens)
    check_limits()
    found = remove_leftovers()
    if found and not quiet:
        from rocmprobe.cli.progress import RunConsole

        RunConsole().print(f"Removed {found} temporary folder(s) of a run that was killed.")
    expected = read_results(verify) if verify else None
    if resume is not None:
        folder = Path(resume or "reports/latest").resolve()
        run.resume(folder, retry_aborted, force)
    else:
        requested = run_options(options)
        if expected:
            requested = verification_options(requested, expected)
        verified = chosen_setting(expected, expected.recommended, "--verify") if expected else None
        existed = bool(out and out.exists())
        folder = run.begin(requested, out, verified, baseline).resolve()
    if suite:
        pytest_args += (str(suite),)
    try:
        return _run_one(folder, workers, pytest_args, fail_on, expected, display)
    except BadInput:
        if resume is None and not RunJournal(folder).state.outcomes:
            run.discard(folder, existed)
        raise


def _run_one(
    folder: Path,
    workers: Optional[int],
    pytest_args: tuple[str, ...],
    fail_on: str,
    expected: Optional[Results],
    display: Display,
) -> int:
    """Run the suites for the run in ``folder``, and show the results."""
    from rocmprobe.cli.github_job import annotate, no_commands
    from rocmprobe.cli.verify import verify
    from rocmprobe.engine import run
    from rocmprobe.judge.summary import with_commands_for
    from rocmprobe.report.terminal.ending import render_run, render_verdict, render_verification

    console = display.console
    holds: Optional[bool] = None
    with no_commands(os.environ):
        code, summary = settled(folder, workers, pytest_args, display)
        if summary is None:
            return code
        results = summary.results
        run.point_recommended_at(folder, results)
        files = {name: folder / name for name in ("report.html", "results.json", "junit.xml")}
        if expected and code != INTERRUPTED:
            holds, sentence = verify(expected, results)
            shown = {} if display.quiet else files
            render_verification(summary, holds, sentence, shown, console)
        elif display.quiet:
            render_verdict(summary, console)
        else:
            render_run(with_commands_for(summary, str(folder)), files, console)
    annotate(summary, os.environ)
    if code == INTERRUPTED:
        return code
    if display.opens:
        _open(files["report.html"])
    return _exit_code(results, fail_on, holds)


def _open(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        print_stderr(f"--open: found no browser. Open {page} yourself, or name one in BROWSER.")


def settled(
    folder: Path,
    workers: Optional[int],
    pytest_args: tuple[str, ...],
    display: Display,
) -> tuple[int, Optional[Summary]]:
    """Run the suites for the run in ``folder``, and return the exit code and the summary.

    The summary is None after an internal error.
    """
    from rocmprobe.engine import run
    from rocmprobe.engine.child import start_fork_server
    from rocmprobe.judge.summary import summarize

    processes = run.workers(folder, workers)
    if processes == 1:
        start_fork_server()
    if workers and workers > processes and not display.quiet:
        display.console.print(
            f"-n {workers} is more than the number of devices: one process tests each device"
        )
    code, summary = _pytest(folder, processes, pytest_args, display)
    if code == INTERNAL:
        return code, None
    if summary is None and code == INTERRUPTED and not (folder / "results.json").exists():
        # The user interrupted the run before pytest started its session.
        from rocmprobe.engine.journal import RunJournal
        from rocmprobe.report.write import write_report

        with delayed_signals():
            summary = write_report(RunJournal(folder))
    # If pytest ran no session, as for `-- --version`, there can be results of an earlier session.
    return code, summary or summarize(read_results(folder / "results.json"))


def run_options(given: dict[str, Any]) -> RunOptions:
    """Build ``RunOptions`` from the options of the command line.

    Raise BadInput if options conflict, or if a check does not exist.
    """
    from rocmprobe.checks import CHECKS
    from rocmprobe.model.options import RunOptions
    from rocmprobe.model.shapes import read_shapes

    given = dict(given)
    redact, file = not given.pop("no_redact"), given.pop("shapes")
    minutes = given.pop("minutes") or 0
    shapes = read_shapes(file) if file else None
    if shapes and given["problems"]:
        raise BadInput("--shapes and --problem both select what to test; leave one of them out")
    problems = shapes.texts if shapes else given["problems"]
    options = RunOptions(**{**given, "problems": problems}, shapes=shapes, redact=redact, minutes=minutes)
    if minutes and "soak" not in options.only and options.level != "long":
        raise BadInput("--minutes: is the duration of the check soak; add --only soak, or --level long")
    for option, words in (("--only", options.only), ("--skip", options.skip)):
        for word in words:
            if word not in CHECKS and not set(word) & set("/*?["):
                near = did_you_mean(word, CHECKS) or f"; checks: {', '.join(CHECKS)}"
                raise BadInput(f"{option}: {word!r} is neither a check nor a pattern for case ids{near}")
    return options


def _exit_code(results: Results, fail_on: str, holds: Optional[bool] = None) -> int:
    """Return the exit code. ``holds`` is the result of ``--verify``, or None without ``--verify``."""
    from rocmprobe.judge.changes import worse
    from rocmprobe.judge.findings.diagnose import act_on

    if any(outcome.failure == "gpu-wedged" for outcome in results.outcomes):
        return WEDGED
    if results.recommendation and results.recommendation.verdict == "gpu-not-tested":
        return NOTHING
    policies = {"findings": act_on, "regressions": worse, "never": lambda _: False}
    bad = policies[fail_on](results) if holds is None else not holds
    return FINDINGS if bad else OK


def _given() -> set[str]:
    context = click.get_current_context()
    return {
        option.opts[-1]
        for option in context.command.params
        if option.name and context.get_parameter_source(option.name) is click.core.ParameterSource.COMMANDLINE
    }


class _Written:
    summary: Optional[Summary] = None
    exhausted: str = ""
    unusable: str = ""

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.unusable = report.longreprtext

    def pytest_exception_interact(self, call: Any) -> None:
        self.exhausted = self.exhausted or exhausted(call.excinfo.value)

    def pytest_internalerror(self, excinfo: Any) -> Optional[bool]:
        self.exhausted = exhausted(excinfo.value)
        return True if self.exhausted else None

    def pytest_unconfigure(self, config: Any) -> None:
        from rocmprobe.pytest_plugin import SUMMARY

        self.summary = config.stash.get(SUMMARY, None)


def _fault_of_suite(files: Iterable[str], text: str) -> str:
    """Return one line about the suite among ``files`` that pytest cannot collect, from pytest's ``text``."""
    reason = text.strip().splitlines()[-1]
    reason = re.sub(r"^E\s+([\w.]+\.BadInput: )?", "", reason)
    for file in map(Path, files):
        # A line is named as in "suite.py:3:" or in 'suite.py", line 3'.
        lines = re.findall(rf'{re.escape(file.name)}(?:", line |:)(\d+)', text)
        if lines:
            return f"{file}, line {lines[-1]}: {reason}"
    return f"the suite cannot be used: {reason}"


def _pytest(
    folder: Path, workers: int, extra: tuple[str, ...], display: Display
) -> tuple[int, Optional[Summary]]:
    """Run the suites in this process, without the user's pytest configuration."""
    import pytest

    from rocmprobe.cli.progress import Progress
    from rocmprobe.pytest_plugin import suites_folder

    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        os.environ.pop(name, None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # xdist's workers import from the working directory first. The user's working directory can contain a
    # module such as random.py, or can have been deleted.
    os.chdir(folder)
    suites = str(suites_folder())
    arguments = [
        "-c", str(Path(__file__).parents[1] / "data" / "suites.ini"),
        "--rootdir", suites, "--import-mode=importlib", "--noconftest",
        "-p", "rocmprobe.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:terminal",
        "--rocmprobe-run", str(folder),
        # The progress is printed while tests run, and the output of checks is captured in their processes.
        "--capture=no",
    ]  # fmt: skip
    if workers > 1:
        arguments += ["-p", "xdist.plugin", "-n", str(workers)]
    written = _Written()
    with nullcontext() if display.quiet else Progress(folder, display.verbose):
        code = pytest.main([*arguments, *extra, suites], plugins=[written])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return OK, written.summary
    if written.unusable and not written.exhausted:
        raise BadInput(_fault_of_suite(extra, written.unusable))
    if code == pytest.ExitCode.INTERRUPTED and not written.unusable:
        return INTERRUPTED, written.summary
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise BadInput("no check is selected; widen --only, --skip or --settings (see `rocmprobe list`)")
    reason = written.exhausted or f"pytest ended with {code!r}"
    print_stderr(f"{reason}; the results so far are in the journal in {folder}")
    return INTERNAL, None
