"""Pages rendered once, and a browser without a network."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import sample
from rendering import Rendered, Visit, render
from several_environments import together

from rocmprobe.model.results import Member
from rocmprobe.model.results_file import write_joined
from rocmprobe.report.joined import page


@pytest.fixture(scope="session")
def rdna1(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return render(sample.rdna1(), tmp_path_factory.mktemp("rdna1"))


@pytest.fixture(scope="session")
def healthy_cpu(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return render(sample.healthy_cpu(), tmp_path_factory.mktemp("healthy"))


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return render(sample.hostile(sample.expected()), tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return render(sample.many_settings(), tmp_path_factory.mktemp("wide"))


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """Of a card, of a name as long as names may be, of the CPU alone, and of nothing."""
    found = together(**{"system": sample.rdna1(), "n" * 40: sample.rdna1(), "cpu-only": sample.healthy_cpu()})
    why = "no Python that can be used (exit code 127: error while loading shared libraries: libpython3.13.so)"
    gone = Member("gone", f"/opt/{'environment-' * 9}/bin/python", unusable=why, note=why)
    joined = dataclasses.replace(found, members=(*found.members, gone))
    folder = tmp_path_factory.mktemp("environments")
    made = Rendered(folder / "results.json", folder / "report.html", folder / "junit.xml")
    write_joined(joined, made.results)
    made.page.write_text(page(joined), "utf-8")
    return made


@pytest.fixture
def visit(chromium: Any) -> Iterator[Any]:
    visits: list[Visit] = []

    def open_page(rendered: Rendered, **options: Any) -> Visit:
        visits.append(Visit(chromium, rendered.page, **options))
        return visits[-1]

    yield open_page
    for each in visits:
        each.context.close()
