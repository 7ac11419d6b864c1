"""The self-contained HTML page of a run."""

from __future__ import annotations

import base64
import gzip
import json
import re
from functools import lru_cache
from typing import Any

import jinja2
from markupsafe import Markup

from rocmprobe.judge.summary import Summary
from rocmprobe.model.problems import problem_words
from rocmprobe.model.results_file import to_json
from rocmprobe.report.issue.failure import gravest
from rocmprobe.report.issue.issue import issue_text
from rocmprobe.report.page import view
from rocmprobe.report.page.layout import CAP, FITS, Fit
from rocmprobe.report.page.validation import VIEWS
from rocmprobe.report.symbols import SEVERITY_SYMBOLS
from rocmprobe.report.templates import asset, content_security_policy, environment, style_sheet
from rocmprobe.report.terminal.markdown import markdown
from rocmprobe.text import readable as text

_PACKAGE = "rocmprobe.report.page"
#: Indentation before an HTML element, which is removed. Lines of text, script or style do not begin with "<".
_INDENT = re.compile(r"\n\s+(?=<)")


def page(summary: Summary) -> str:
    """Return the HTML page of a run, shortened to at most ``CAP`` bytes."""
    script, texts, packed = asset(_PACKAGE, "page.js"), _issue_texts(summary), _pack(to_json(summary.results))
    files = {
        "policy": content_security_policy([script]),
        "script": Markup(script),  # noqa: S704 - files of ours
        "style": Markup(style_sheet(_PACKAGE, "style.css")),  # noqa: S704
    }
    made = ""
    for fit in FITS:
        made = _templates(fit).get_template("page.html.jinja").render(
            **files,
            summary=summary,
            page=view.build(summary, fit),
            in_words=problem_words,
            severity_symbols=SEVERITY_SYMBOLS,
            validation_views=VIEWS.values(),
            packed=packed if len(packed) <= fit.data else None,
            texts=texts,
            packed_texts=_pack(texts),
        )  # fmt: skip
        made = _INDENT.sub("\n", made)
        if len(made.encode()) <= CAP:
            break
    return made


@lru_cache(maxsize=len(FITS))
def _templates(fit: Fit) -> jinja2.Environment:
    return environment(_PACKAGE, lambda value: _shown(value, fit))


def _shown(value: Any, fit: Fit) -> Any:
    """Return ``value`` as plain text within the limits of ``fit``. Markup is not shortened."""
    if value is None:
        return ""
    plain = text.plain(str(value))
    return Markup(plain) if isinstance(value, Markup) else text.clipped(plain, fit.value)  # noqa: S704


def _issue_texts(summary: Summary) -> dict[str, str]:
    issue = {"Issue text": issue_text(summary)} if gravest(summary.results) else {}
    return {**issue, "Markdown": markdown(summary)}


def _pack(data: Any) -> Markup:
    plain = json.dumps(data, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(plain.encode(), 9, mtime=0)).decode()
    return Markup(packed)  # noqa: S704 - letters and numbers
