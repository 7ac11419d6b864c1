"""Pages rendered once, and a browser without a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sample
from rendering import Rendered, Visit, render


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


@pytest.fixture
def visit(chromium: Any) -> Iterator[Any]:
    visits: list[Visit] = []

    def open_page(rendered: Rendered, **options: Any) -> Visit:
        visits.append(Visit(chromium, rendered.page, **options))
        return visits[-1]

    yield open_page
    for each in visits:
        each.context.close()
