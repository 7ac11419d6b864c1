"""``rocmprobe compare``: what is read, what leaves the house, and where the answer goes besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rocmprobe.cli.github_job import no_commands, summarise
from rocmprobe.judge.comparison.compare import Comparison, as_data, compare, worse
from rocmprobe.judge.comparison.environment_changes import Difference
from rocmprobe.model.results import Results, from_json, read_results
from rocmprobe.text.printing import say_json


def compared(old: Path, new: Path) -> Comparison:
    """The comparison of two runs, each a results.json or the folder of a run, without identifiers.

    Raises BadInput for what holds no results, or no outcome.
    """
    from rocmprobe.text.redact import redacted, redacted_text

    found = compare(_results(old), _results(new), str(old), str(new))
    clean: Comparison = from_json(Comparison, redacted(asdict(found)))
    # Redaction goes by names: a value has to be under its own, and a name may hold a path.
    environment = (
        Difference(redacted_text(each.name), _clean(each.name, each.before), _clean(each.name, each.after))
        for each in found.environment
    )
    return replace(clean, environment=tuple(environment))


def _clean(name: str, value: Any) -> Any:
    from rocmprobe.text.redact import redacted

    (clean,) = redacted({name: value}).values()
    return clean


def answer(old: Path, new: Path, as_json: bool, environ: Mapping[str, str]) -> bool:
    """Print what changed, and write it where a GitHub job wants it; returns whether a job should fail.

    Raises BadInput as ``compared``.
    """
    comparison = compared(old, new)
    if as_json:
        say_json(as_data(comparison))
    else:
        from rocmprobe.report.terminal.comparison import render_comparison
        from rocmprobe.text.console import Console

        with no_commands(environ):
            render_comparison(comparison, Console())
    if environ.get("GITHUB_STEP_SUMMARY"):
        from rocmprobe.report.terminal.comparison import markdown

        summarise(markdown(comparison), environ)
    return worse(comparison)


def _results(source: Path) -> Results:
    """Of a folder its results.json; where the run died before it wrote one, what its journal holds."""
    written = source / "results.json"
    if source.is_dir() and not written.exists():
        from rocmprobe.report.write import recorded

        return recorded(source)
    return read_results(written if source.is_dir() else source)
