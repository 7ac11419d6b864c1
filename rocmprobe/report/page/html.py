"""The one self-contained page and the JUnit file of a run. The page carries along, compressed, its
results.json and texts for issue trackers to copy."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional

import jinja2
from markupsafe import Markup

from rocmprobe.model.results import Results, to_json, write_whole
from rocmprobe.report import junit, text
from rocmprobe.report.issue.failure import TRACKERS, failures
from rocmprobe.report.issue.issue import issue_block
from rocmprobe.report.junit import Reported, reported
from rocmprobe.report.page import pytest_html_page, view
from rocmprobe.report.page.layout import CAP, FITS, Fit, clipped
from rocmprobe.report.templates import asset, content_security_policy, environment, style_sheet
from rocmprobe.report.terminal.markdown import markdown

_PACKAGE = "rocmprobe.report.page"
#: What indents elements: no line of a text begins with an angle bracket that is not escaped.
_INDENT = re.compile(r"\n\s+(?=<)")
_NAMES = {"miopen": "MIOpen", "rocm": "ROCm", "pytorch": "PyTorch", "ultralytics": "Ultralytics"}


def write(results: Results, html_path: Path, junit_path: Optional[Path] = None) -> None:
    """Write the page of a run, and its JUnit file where ``junit_path`` is given.

    Raises OSError.
    """
    cases = reported(results)
    _put(html_path, page(results, cases))
    if junit_path is not None:
        _put(junit_path, junit.document(cases, results))


def page(results: Results, cases: Optional[Sequence[Reported]] = None) -> str:
    """The page of a run, with as much of it as fits; ``cases`` are its outcomes as test cases, if at hand."""
    every = reported(results) if cases is None else cases
    made = ""
    for fit in FITS:
        made = assemble(pytest_html_page.page(every[: fit.rows], results), results, fit)
        if len(made.encode()) <= CAP:
            break
    return made


@lru_cache(maxsize=len(FITS))
def _templates(fit: Fit) -> jinja2.Environment:
    return environment(_PACKAGE, lambda value: _shown(value, fit))


def _shown(value: Any, fit: Fit) -> Any:
    """Any value as the page may show it: escaped, and no longer than fits; SVG of our own stays whole."""
    if value is None:
        return ""
    plain = text.plain(value)
    return plain if isinstance(value, Markup) else clipped(plain, fit.value)


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
    script = asset(_PACKAGE, "page.js")
    values = view.build(results, fit)
    packed, texts = _results_data(results, fit), _issue_texts(results)
    ours = _templates(fit).get_template("page.html.jinja").render(
        **values, packed=packed, texts=texts, packed_texts=_pack(texts)
    )  # fmt: skip
    ours = _INDENT.sub("\n", ours)
    own_head = _head([script, theirs.rpartition("<script>")[2].partition("</script>")[0]])
    start = page[:head].replace("<html>", '<html lang="en">', 1).replace("<head>", f"<head>{own_head}", 1)
    title = str(Markup.escape(text.one_line(values["title"])))
    start = re.sub(r"(<title[^>]*>).*?(</title>)", lambda match: match[1] + title + match[2], start, count=1)
    # Ours comes first: pytest-html's writes the address anew when it starts.
    return (
        f"{start}<style>{style_sheet(_PACKAGE, 'style.css')}</style></head>\n<body>\n{ours}\n"
        f"<script>{script}</script>\n"
        f'<section class="pytest-html" aria-label="All outcomes, by pytest-html">{theirs}</section>\n'
        "</body>\n</html>\n"
    )


def _head(scripts: list[str]) -> str:
    return (
        f'<meta http-equiv="Content-Security-Policy" content="{content_security_policy(scripts)}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
    )


def _put(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(content.encode(), path)


def _results_data(results: Results, fit: Fit) -> Optional[Markup]:
    """The whole results.json, packed; None where that is more than fits."""
    packed = _pack(to_json(results))
    return packed if len(packed) <= fit.data else None


def _issue_texts(results: Results) -> dict[str, str]:
    """By what it is for, the text to paste there; where nothing failed there is the Markdown only."""
    trackers = TRACKERS if failures(results) else ()
    blocks = {_NAMES.get(tracker, tracker): issue_block(results, tracker) for tracker in trackers}
    return {**blocks, "Markdown": markdown(results)}


def _pack(data: Any) -> Markup:
    """``data`` as JSON, gzip and base64: no character of HTML is left in it, and no date."""
    plain = json.dumps(data, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(plain.encode(), 9, mtime=0)).decode()
    return Markup(packed)  # noqa: S704 - letters and numbers
