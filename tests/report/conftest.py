"""Runs and pages made once, and a browser without a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sample
from rendering import NOTE, Rendered, Visit, render
from runs import PROBLEM, Run, machine_file, run


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


@pytest.fixture(scope="session")
def failing_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with a note in which MIOpen fails."""
    folder = tmp_path_factory.mktemp("failing")
    machine = machine_file(folder / "machine.toml", {"library": "miopen", "effect": "raise"})
    done = run(
        folder / "run", "--simulate", machine, "--note", NOTE, "--only", "convolution", "--only", "copy",
        "--settings", "vendor-off", "--problem", PROBLEM, "--purpose", "inference",
    )  # fmt: skip
    assert done.ended.returncode in (0, 1), done.ended.stderr
    return done
