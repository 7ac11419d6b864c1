"""MkDocs hook: fill the catalogue and bring linked files from outside ``docs/`` into the site.

The documents use relative links to files of the repository, so the links also work in a checkout. The site
keeps these paths, without ``docs/``. ``mkdocs build --strict`` fails if a linked file does not exist.
"""

from __future__ import annotations

import importlib.util
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(\]\()([^)\s:#]+)(#[^)\s]*)?(\))")
_IN_NAVIGATION = {"benchmarks/README.md", "reports/examples/README.md"}
#: Files that a browser shows. Other text files become pages with highlighted code.
_AS_IS = {".html", ".json", ".png", ".svg", ".css"}
_LANGUAGES = {
    ".toml": "toml",
    ".py": "python",
    ".yml": "yaml",
    ".sh": "sh",
    "": "text",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README as the first page, the changelog, and every file that a page links."""
    files.append(File.generated(config, "index.md", content=_rewritten("README.md")))
    files.append(File.generated(config, "CHANGELOG.md", content=_rewritten("CHANGELOG.md")))
    pending = ["README.md", "CHANGELOG.md", *(f"docs/{each.src_uri}" for each in files.documentation_pages())]
    seen = set(pending)
    while pending:
        source = pending.pop()
        if not source.endswith(".md") or not (ROOT / source).is_file():
            continue
        for target in _targets(source):
            if target not in seen:
                seen.add(target)
                pending.append(target)
                if not target.startswith("docs/"):
                    files.append(_added(target, config))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links that leave ``docs/``, and fill the tables of the catalogue."""
    if page.file.generated_by:
        return markdown
    name = page.file.src_uri
    return _relinked(_generator().filled(markdown) if name == "catalogue.md" else markdown, f"docs/{name}")


def _added(path: str, config: MkDocsConfig) -> File:
    """Return a file of the repository as a file of the site that is not in the navigation."""
    level = InclusionLevel.UNDEFINED if path in _IN_NAVIGATION else InclusionLevel.NOT_IN_NAV
    if path.endswith(".md"):
        return File.generated(config, path, content=_rewritten(path), inclusion=level)
    suffix = Path(path).suffix
    if suffix in _AS_IS:
        return File.generated(config, path, abs_src_path=str(ROOT / path), inclusion=level)
    code = (ROOT / path).read_text("utf-8")
    page = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n``````{_LANGUAGES[suffix]}\n{code}\n``````\n"
    return File.generated(config, f"{path}.md", content=page, inclusion=level)


def _rewritten(source: str) -> str:
    return _relinked((ROOT / source).read_text("utf-8"), source)


def _relinked(text: str, source: str) -> str:
    """Replace each relative link to a file of the repository by the link between their pages."""
    start = posixpath.dirname(_site_path(source))

    def relinked(link: re.Match[str]) -> str:
        target = _resolved(source, link[2])
        if target is None:
            return link[0]
        return f"{link[1]}{posixpath.relpath(_site_path(target), start or '.')}{link[3] or ''}{link[4]}"

    return _LINK.sub(relinked, text)


def _targets(source: str) -> list[str]:
    links = _LINK.findall((ROOT / source).read_text("utf-8"))
    return [target for _, link, *_ in links if (target := _resolved(source, link)) is not None]


def _resolved(source: str, link: str) -> str | None:
    """Return the path that ``link`` names in the repository, or None if there is no such file."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    if (ROOT / path).is_dir():
        path = posixpath.join(path, "README.md")
    return path if (ROOT / path).is_file() else None


def _site_path(path: str) -> str:
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path[len("docs/") :]
    as_it_is = Path(path).suffix in {".md", *_AS_IS}
    return path if as_it_is else f"{path}.md"


def _generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
