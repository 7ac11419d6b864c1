"""The one self-contained page and the JUnit file of a run."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Optional

import jinja2
from markupsafe import Markup

from rocmprobe.model import Outcome, Results, read_results
from rocmprobe.report import DOCUMENT, embedded, evidence, pytest_html_page, text, view
from rocmprobe.report.junit import tidied
from rocmprobe.report.size import CAP, FITS, Fit, clipped
from rocmprobe.report.states import LOOKS, reason

_PLUGINS = ("pytest_html.plugin", "pytest_metadata.plugin", "rocmprobe.report.replay")
_LIMIT_SECONDS = 300
#: What indents elements: no line of a text begins with an angle bracket that is not escaped.
_INDENT = re.compile(r"\n\s+(?=<)")
#: Characters of evidence in JUnit, whose readers load all of it.
_LONGREPR = 20_000


def write(results_path: Path, html_path: Path, junit_path: Optional[Path] = None) -> None:
    """Write the page, and ``junit_path`` if given, from a ``results.json``.

    The outcomes are replayed in a pytest session of their own, in a process of their own: a run is
    a pytest session already. Raises BadInput for a results file that cannot be used.
    """
    results = read_results(results_path)
    every = rows(results)
    page, junit = "", ""
    for fit in FITS:
        shown = every[: fit.rows]
        theirs, replayed = _replayed(results, shown)
        # Only the page may have to leave out outcomes.
        junit = junit or tidied(replayed, shown, results)
        page = assemble(theirs, results, fit)
        if len(page.encode()) <= CAP:
            break
    _put(html_path, page)
    if junit_path is not None:
        _put(junit_path, junit)


def _replayed(results: Results, shown: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """pytest-html's page and pytest's JUnit."""
    with tempfile.TemporaryDirectory(prefix="rocmprobe-report-") as name:
        folder = Path(name)
        document = {
            "environment": {label: text.one_line(value) for label, value in view.identity(results)},
            "rows": shown,
        }
        (folder / DOCUMENT).write_text(json.dumps(document), "utf-8")
        _replay(folder)
        return (folder / "report.html").read_text("utf-8"), (folder / "junit.xml").read_text("utf-8")


def rows(results: Results) -> list[dict[str, Any]]:
    """What the replay reports, one row for each outcome, with no text that could harm a terminal or XML."""
    found: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for position, outcome in enumerate(results.outcomes):
        name = text.one_line(outcome.id, 300) or "outcome"
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            # pytest-html and JUnit key by name and would merge the two.
            name = f"{name} #{seen[name]}"
        look = LOOKS[outcome.state]
        group = text.one_line(f"{outcome.check}.{outcome.setting}", 100).replace("::", ":")
        found.append(
            {
                "name": name,
                "group": group,
                "nodeid": f"{group}::{name}",
                "state": outcome.state,
                "outcome": look.pytest,
                "text": _longrepr(outcome),
                "anchor": evidence.anchor(position),
                "reason": text.one_line(reason(outcome) or look.meaning),
                "seconds": evidence.took(outcome),
                "properties": {
                    "state": outcome.state,
                    "setting": text.one_line(outcome.setting),
                    "device": text.one_line(outcome.device),
                    # JUnit has no word for a test that works and was expected to fail.
                    **({"expected": text.one_line(outcome.expected.reason)} if outcome.expected else {}),
                },
            }
        )
    return found


def _longrepr(outcome: Outcome) -> str:
    look = LOOKS[outcome.state]
    why = reason(outcome)
    if look.pytest == "skipped":
        return clipped(text.plain(f"{outcome.state}: {why or look.meaning}"), _LONGREPR)
    lines = [f"{outcome.state}: {why or look.meaning}", *outcome.evidence[1:]]
    known = outcome.expected
    if known:
        lines.insert(
            1, f"came to {known.state}; expected by {known.source}: {known.reason} {known.link}".rstrip()
        )
    for number, attempt in enumerate(outcome.attempts, 1):
        took = text.seconds(attempt.seconds)
        lines.append(f"attempt {number}: {attempt.state}, {took} {attempt.message}".rstrip())
    return clipped(text.plain("\n".join(lines)), _LONGREPR)


def _replay(folder: Path) -> None:
    # Relative names only: pytest expands variables in --rootdir and pytest-html in --html.
    (folder / "replay.ini").write_text(_asset("replay.ini"), "utf-8")
    command = [sys.executable, "-m", "pytest", "-qq", "--noconftest", "-c", "replay.ini", "--rootdir=."]
    command += ["-p", "no:cacheprovider", *(part for plugin in _PLUGINS for part in ("-p", plugin))]
    command += ["--html=report.html", "--self-contained-html", "--junit-xml=junit.xml"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        # Ctrl-C is for the run, which finishes its report first.
        start_new_session=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    if not (folder / "report.html").exists() or not (folder / "junit.xml").exists():
        last = text.one_line((done.stderr or done.stdout)[-400:], 400)
        raise RuntimeError(f"pytest-html wrote no report (exit code {done.returncode}): {last}")


def _environment() -> dict[str, str]:
    """The user's environment without what steers pytest or turns warnings into errors."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTEST_") and name not in ("PYTHONWARNINGS", "PYTHONOPTIMIZE")
    }
    kept["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # The child must find this very rocmprobe, even one that runs from a checkout.
    home = str(Path(__file__).resolve().parents[2])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), home]))
    return kept


@lru_cache(maxsize=len(FITS))
def _templates(fit: Fit) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("rocmprobe.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: _shown(value, fit),
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _shown(value: Any, fit: Fit) -> Any:
    """Any value as the page may show it: inert, and no longer than fits; SVG of our own stays whole."""
    if value is None:
        return ""
    plain = text.plain(value)
    return plain if isinstance(value, Markup) else clipped(plain, fit.value)


def _asset(name: str) -> str:
    return resources.files("rocmprobe.report").joinpath(name).read_text("utf-8")


def assemble(page: str, results: Results, fit: Fit = FITS[0]) -> str:
    """pytest-html's page with ours above it, in the order in which it is seen.

    Only HTML's own landmarks (head, body) are relied on, so that another pytest-html still fits.
    """
    opened = re.search(r"<body[^>]*>", page)
    closed = page.rfind("</html>")
    head = page.find("</head>")
    if opened is None or closed < 0 or head < 0:
        raise RuntimeError("pytest-html's page has no head and body to build on")
    # pytest-html 4.1 closes the body before its footer, later ones after it.
    theirs = "".join(page[opened.end() : closed].rpartition("</body>")[::2])
    script = _asset("templates/page.js")
    values = view.build(results, fit)
    packed, texts = embedded.results_data(results, fit), embedded.issue_texts(results)
    ours = _templates(fit).get_template("page.html.jinja").render(
        **values, packed=packed, texts=texts, packed_texts=embedded.pack(texts)
    )  # fmt: skip
    ours = _INDENT.sub("\n", ours)
    own_head = _head([script, theirs.rpartition("<script>")[2].partition("</script>")[0]])
    start = page[:head].replace("<html>", '<html lang="en">', 1).replace("<head>", f"<head>{own_head}", 1)
    title = str(Markup.escape(text.one_line(values["title"])))
    start = re.sub(r"(<title[^>]*>).*?(</title>)", lambda match: match[1] + title + match[2], start, count=1)
    theirs = pytest_html_page.tidied(theirs, results)
    # Ours comes first: pytest-html's writes the address anew when it starts.
    return (
        f"{start}<style>{_asset('templates/style.css')}</style></head>\n<body>\n{ours}\n"
        f"<script>{script}</script>\n"
        f'<section class="pytest-html" aria-label="All outcomes, by pytest-html">{theirs}</section>\n'
        "</body>\n</html>\n"
    )


def _head(scripts: list[str]) -> str:
    """Meta elements; the policy forbids all requests, and every script but the page's own two.

    Escaping alone keeps foreign text inert; this is the second fence.
    """
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src {allowed}"
    )
    return (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
    )


def _put(path: Path, content: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(content, "utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
