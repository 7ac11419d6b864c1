"""Redaction: names of this user and machine are replaced, everything else stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe import redact

PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
USER, HOME, HOST = "melinda", "/home/melinda", "workhorse"


def several(inner):
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    monkeypatch.setenv("USER", USER)
    monkeypatch.setenv("HOME", HOME)
    monkeypatch.setattr("socket.gethostname", lambda: HOST)
    for each in vars(redact).values():
        getattr(each, "cache_clear", lambda: None)()
    yield
    for each in vars(redact).values():
        getattr(each, "cache_clear", lambda: None)()


def text(line):
    return redact.redacted({"log": line})["log"]


@pytest.mark.parametrize(
    "line",
    [
        "/home/melinda/.config/miopen/gfx1010_20.udb",
        "cannot open '/home/melinda'",
        "melinda is not in the group render",
        "MIOpen Error: workhorse: No device",
        "ssh melinda@workhorse:/home/melinda/model.py",
        "workhorse",
    ],
)
def test_names_are_replaced(line):
    found = text(line)
    for name in (USER, HOST):
        assert name not in found


@pytest.mark.parametrize(
    "line",
    [
        "melindas are many and workhorses strong",
        "RuntimeError: miopenStatusUnknownError",
        "conv2d-fp32-n2-c16-i28x28-k32-f3x3-p1-bias",
        "AMD Radeon RX 5600 XT",
        "",
    ],
)
def test_other_words_stay(line):
    assert text(line) == line


def test_it_is_stable_and_idempotent():
    once = text("melinda@workhorse /home/melinda/x")
    assert text("melinda@workhorse /home/melinda/x") == once
    assert text(once) == once


def test_every_place_of_free_text_is_reached():
    data = {
        "machine": {"facts": {"a": {"value": [f"{HOME}/x", {"deep": HOST}], "source": f"{HOME}/y"}}},
        "trials": [{"log": USER}],
        "outcomes": [{"evidence": [USER, HOST], "attempts": [{"message": HOME}]}],
    }
    found = repr(redact.redacted(data))
    for name in (USER, HOST):
        assert name not in found


def test_shape_numbers_and_identifiers_stay():
    data = {
        "id": "cpu/torch/default",
        "state": "pass",
        "timings": {"fwd": 0.5},
        "evidence": [],
        "cus": 36,
        "none": None,
    }
    assert redact.redacted(data) == data


@given(st.recursive(PLAIN, several))
def test_json_without_names_is_left_alone(data):
    if not any(name in repr(data) for name in (USER, HOST)):
        assert redact.redacted(data) == data
