"""``rocmprobe explain``: explains why a program failed, from a log, or prints what a run found."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO, Optional, TypeVar, Union

import click

from rocmprobe.cli.base import exit_code_command
from rocmprobe.explain.explain import Explanation, explain
from rocmprobe.explain.facts import (
    Facts,
    facts_in,
    facts_of,
    facts_of_machine,
    known,
    merge_and_derive,
    over,
)
from rocmprobe.model.exit_codes import OK
from rocmprobe.model.results import BadInput, Machine, Results
from rocmprobe.model.results_file import from_json, read_results, results_file, to_json
from rocmprobe.text import reading
from rocmprobe.text.log import LONGEST, Log, read_log
from rocmprobe.text.printing import say_json
from rocmprobe.text.readable import count

_T = TypeVar("_T")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_START = 4096
_NOTHING_NAMED = "name a file with the log, or pipe it: python train.py 2>&1 | rocmprobe explain"


@click.command("explain")
@click.argument("log", required=False, metavar="[FILE|-]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/troubleshooting.md).")
@click.option("--facts", type=click.Path(path_type=Path), metavar="FILE",
              help="JSON file with more facts, or the output of `rocmprobe detect --json`.")  # fmt: skip
@click.option("--fact", "given", multiple=True, metavar="NAME=VALUE",
              help="A single fact: gpu, true_gfx, effective_gfx, rocm, torch, torch_targets, "
              "rocblas_targets, os, first_gpu, exit, or an environment variable.")  # fmt: skip
@click.option("--machine", is_flag=True,
              help="Use the facts of this machine, if the program failed here.")  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="Also print what else was weighed, and the facts used.")
@click.option(
    "--no-redact", is_flag=True, help="Keep names, addresses and the like (docs/reporting-a-bug.md)."
)
@exit_code_command
def explain_command(
    log: Optional[str],
    as_json: bool,
    facts: Optional[Path],
    given: tuple[str, ...],
    machine: bool,
    verbose: bool,
    no_redact: bool,
) -> int:
    """Say why a program failed, from its log, or print what a run found.

    FILE is a log, the folder of a run, or its results.json. Without FILE, or with -, the log is read from
    standard input.

    \b
    Examples:
      python train.py 2>&1 | rocmprobe explain --machine
      rocmprobe explain log.txt --fact 'gpu=RX 5700 XT' --fact HSA_OVERRIDE_GFX_VERSION=10.3.0
    """
    known_here = given_facts(facts, given)
    if machine:
        known_here = over(known_here, facts_of_this_machine())
    found = explain_source(log, known_here)
    found = found if no_redact else without_identifiers(found)
    if isinstance(found, Results):
        _print_run(found, as_json)
    elif as_json:
        say_json(as_data(found))
    else:
        from rocmprobe.cli.github_job import no_commands
        from rocmprobe.report.terminal.explanation import render_explanation
        from rocmprobe.text.console import Console

        with no_commands(os.environ):
            render_explanation(found, Console(), verbose)
    return OK


def _print_run(results: Results, as_json: bool) -> None:
    """Print the findings and the verdict of a run."""
    from rocmprobe.judge.summary import summarize

    summary = summarize(results)
    if as_json:
        findings = to_json(summary.findings)
        say_json({"headline": summary.headline, "verdict": summary.reason, "findings": findings})
        return
    from rocmprobe.cli.github_job import no_commands
    from rocmprobe.report.terminal.ending import render_conclusion
    from rocmprobe.text.console import Console

    with no_commands(os.environ):
        render_conclusion(summary, Console())


def facts_of_this_machine() -> Facts:
    from rocmprobe.detect import detect

    return facts_of_machine(detect(Path("/")))


def explain_source(source: Optional[str], given: Facts) -> Union[Explanation, Results]:
    """Explain a log. If the source is a run, return its results, which are already judged.

    ``-`` or None means standard input. Raise BadInput if a file cannot be read.
    """
    piped = source in (None, "-")
    log = _of_standard_input(source is None) if piped else _of_file(Path(str(source)))
    if isinstance(log, Results):
        return log
    facts = merge_and_derive(given, facts_in(log))
    return replace(explain(log, facts), note=" ".join(_not_looked_at(log)))


def _not_looked_at(log: Log) -> Iterator[str]:
    if log.left_out:
        yield f"{count(log.left_out, 'distinct line')} in the middle of the log were ignored."
    if log.shortened:
        longer = count(log.shortened, "line")
        yield f"{longer} longer than {LONGEST:,} characters: the middle was ignored."


def without_identifiers(found: _T) -> _T:
    """Return an explanation or results with identifiers redacted, safe to publish."""
    from rocmprobe.text.redact import redacted

    clean: _T = redacted(found)
    return clean


def as_data(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation as JSON data (docs/troubleshooting.md)."""
    return {**asdict(explanation), "facts": known(explanation.facts)}


def given_facts(path: Optional[Path], options: Iterable[str]) -> Facts:
    """Return the facts in a JSON file and in ``NAME=VALUE`` options. Options override the file.

    The file contains facts, the output of ``rocmprobe detect --json``, or the results of a run.

    Raise BadInput if the file or an option is invalid.
    """
    of_file = _facts_file(path) if path else Facts()
    values: dict[str, Any] = {}
    env: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise BadInput(f"--fact {option!r:.80}: write NAME=VALUE, as in --fact torch=2.0.1+rocm5.4.2")
        variable = name[len("env.") :] if name.startswith("env.") else name
        if _VARIABLE.fullmatch(variable):
            env[variable] = value
        elif name in Facts.__dataclass_fields__ and name != "env":
            values[name] = value
        else:
            facts = ", ".join(field for field in Facts.__dataclass_fields__ if field != "env")
            raise BadInput(f"--fact {name!r:.80} is not a fact; name one of {facts}, or a variable")
    try:
        of_options = facts_of({**values, "env": env})
    except BadInput as error:
        raise BadInput(f"--fact: {error}") from error
    return over(of_options, of_file)


def _facts_file(path: Path) -> Facts:
    recorded = read_facts(path)
    return facts_of_machine(recorded) if isinstance(recorded, Machine) else recorded


def read_facts(path: Path) -> Union[Machine, Facts]:
    """Read facts from a JSON file.

    Return a ``Machine`` for the output of `rocmprobe detect --json` and for the results of a run.

    Raise BadInput if the file is invalid.
    """
    path = results_file(path)
    data = reading.read_json(path, "name a JSON file with facts")
    if not isinstance(data, dict):
        raise BadInput(f'{path}: not a JSON object of facts, such as {{"gpu": "RX 5700 XT", "rocm": "5.2"}}')
    if "schema_version" in data:
        return read_results(path).machine
    try:
        if isinstance(data.get("gpus"), list):
            parts = {name: data[name] for name in ("gpus", "facts", "variables") if name in data}
            return from_json(Machine, parts)
        return facts_of(data)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def _of_standard_input(piped: bool) -> Union[Log, Results]:
    stream = sys.stdin
    if stream is None or stream.closed or (piped and stream.isatty()):
        raise BadInput(_NOTHING_NAMED)
    try:
        return _of_stream(stream.buffer, Path("standard input"))
    except OSError as error:
        raise BadInput(f"standard input: cannot be read ({error.strerror}); {_NOTHING_NAMED}") from error


def _of_file(path: Path) -> Union[Log, Results]:
    path = results_file(path)
    try:
        with path.open("rb") as stream:
            return _of_stream(stream, path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{path}: cannot be read ({reason}); name a file with a log") from error


def _of_stream(stream: BinaryIO, path: Path) -> Union[Log, Results]:
    """Read a log or the results of a run."""
    start = stream.read(_START)
    if not (start.lstrip().startswith(b"{") and b'"schema_version"' in start):
        return read_log(stream, start)
    content = reading.rest_of(stream, start, str(path), "name the folder of a run, or its results.json")
    if _of_json_lines(content):
        return read_log(io.BytesIO(content))
    from rocmprobe.report.write import judged_again

    return judged_again(read_results(path, content), path)


def _of_json_lines(content: bytes) -> bool:
    """Return True if ``content`` has several lines and the first line is a JSON object."""
    first, _, rest = content.strip().partition(b"\n")
    return bool(rest) and isinstance(reading.json_line(first), dict)
