"""Templates, style sheets and the content security policy of all HTML pages."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from importlib import resources
from typing import Any

import jinja2


def environment(package: str, shown: Callable[[Any], Any]) -> jinja2.Environment:
    """Return the Jinja environment for the templates of ``package``.

    ``shown`` converts each value of a page before the value is escaped.
    """
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def asset(package: str, name: str) -> str:
    """Return the text of a file in the templates folder of ``package``."""
    return resources.files(package).joinpath(f"templates/{name}").read_text("utf-8")


def style_sheet(package: str, name: str) -> str:
    """Return the style sheet: common light and dark colours as CSS variables, then the package's rules."""
    colours = resources.files("rocmprobe.report").joinpath("colours.css").read_text("utf-8")
    return colours + asset(package, name)


def content_security_policy(scripts: Iterable[str]) -> str:
    """Return the policy of a page that makes no request and runs only the given scripts."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src {allowed}"
    )
