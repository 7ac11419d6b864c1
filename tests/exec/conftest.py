"""The programs of these tests are small: threads of OpenMP would only get in each other's way."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
