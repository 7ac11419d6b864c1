"""Files from outside: what is no JSON or TOML, nests too deep, holds numbers that are none, or has no end."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocmprobe
from rocmprobe.knowledge import settings
from rocmprobe.model.results import NothingToTest
from rocmprobe.text import reading
from rocmprobe.text.plain_text import is_plain, message, one_line, plain, quoted
from rocmprobe.text.reading import BadInput, json_line, json_of, lines_of, read_json, toml_of
from rocmprobe.text.tables import rows

DEEP = "[" * 60 + "]" * 60
UNREADABLE = {
    "nothing": b"", "words": b"gpu: RX 5700", "no UTF-8": b'"\xff\xfe\xff"', "cut off": b'{"a": [1, 2',
    "far too deep": b"[" * 100_000, "deep objects": b'{"a":' * 50_000, "too deep": DEEP.encode(),
    "NaN": b'{"a": NaN}', "infinity": b'{"a": [1, -Infinity]}', "a float that is none": b'{"a": 1e999}',
    "an integer of 40 digits": b'{"a": 1' + b"0" * 40 + b"}", "of 10,000 digits": b"1" * 10_000,
}  # fmt: skip


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_nobody_could_work_with_is_one_line(what: str) -> None:
    with pytest.raises(BadInput) as refused:
        json_of(UNREADABLE[what], "some.json", "make another")
    told = str(refused.value)
    assert told.startswith("some.json: ")
    assert told.endswith("; make another")
    assert "\n" not in told
    assert len(told) < 400


def test_the_place_of_a_number_is_named() -> None:
    with pytest.raises(BadInput, match=r"^f: a/1/b: a number that is infinite"):
        json_of(b'{"a": [0, {"b": 1e999}]}', "f", "mend")


@pytest.mark.parametrize("text", ["a = nan", "a = inf", "a = " + "9" * 40, f"a = {DEEP}", "a = [1", "=", "a"])
def test_toml_is_held_to_the_same(text: str) -> None:
    with pytest.raises(BadInput, match=r"^f: [^\n]*; mend$"):
        toml_of(text.encode(), "f", "mend")


def test_a_file_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(BadInput, match="larger than 1,000 bytes"):
        read_json(Path("/dev/zero"), "name another", 1000)


@pytest.mark.parametrize("name", ["none.json", ".", "\0", "x" * 5000])
def test_a_file_that_cannot_be_read(name: str) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_json(Path(name), "name another")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_json_comes_in_the_encodings_of_json(encoding: str) -> None:
    assert json_of('{"ü": 1.5}'.encode(encoding), "f", "mend") == {"ü": 1.5}


@given(st.binary(max_size=60))
def test_a_line_is_data_or_nothing(line: bytes) -> None:
    try:
        expected = json.loads(line)
    except ValueError:
        expected = None
    assert json_line(line) == expected or expected != expected


@pytest.mark.parametrize("line", [b"[" * 100_000, DEEP.encode(), b"1" * 10_000, b'{"torn": "li'])
def test_a_line_that_would_harm_is_nothing(line: bytes) -> None:
    assert json_line(line) is None


def test_a_line_without_end_costs_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST_LINE", 10)
    stream = io.BytesIO(b"one\n" + b"x" * 95 + b"\ntwo\nthree45678\n" + b"y" * 20)
    assert list(lines_of(stream)) == [b"one\n", b"two\n"]


#: Who takes JSON apart besides: what this program wrote a moment ago, or programs without this package.
_OWN = re.compile(r"^(worker/|exec/inject/|bypass/|kernels/|text/(reading|tables)\.py)")


def test_nobody_else_reads_json_or_toml_from_outside() -> None:
    package = Path(rocmprobe.__file__).parent
    found = []
    for path in package.rglob("*.py"):
        name, content = path.relative_to(package).as_posix(), path.read_text("utf-8")
        if not _OWN.match(name):
            found += [(name, line) for line in content.splitlines() if re.search(r"json\.loads?\(", line)]
            found += [(name, "tomli")] if "tomli.load" in content else []
    assert found == []


HARMFUL = "\x1b]8;;http://a.example\x07link\x1b[31m\x00\x9b1m\u202egpj\u2066\ud800 end\r\nnext"


def test_messages_quote_nothing_raw() -> None:
    for kind in (BadInput, NothingToTest):
        told = str(kind(f"f: {HARMFUL * 3000}; mend it"))
        assert is_plain(told)
        assert "\n" not in told
        assert len(told) <= 2000
        assert told.startswith("f: ")
        assert told.endswith("; mend it")


@given(st.text(), st.integers(10, 300))
def test_what_is_made_inert_is_inert_and_no_longer_than_wanted(text: str, limit: int) -> None:
    assert is_plain(plain(text))
    assert plain(plain(text)) == plain(text)
    for made in (one_line(text, limit), message(text, limit), quoted(text, limit)):
        assert is_plain(made)
        assert "\n" not in made
        assert len(made) <= limit


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**6,
        pytest.param(10**5000, id="of 5,000 digits"),
        ["y" * 10**6] * 2,
        {"\x1b": "\x1b"},
        "\ud800",
    ],
)
def test_a_quote_is_short(value: Any) -> None:
    assert len(quoted(value)) <= 80
    assert is_plain(quoted(value))


class Row(msgspec.Struct):
    mass: int


def test_a_row_without_a_field_is_named() -> None:
    with pytest.raises(ValueError, match=r"^data/gpus\.toml: \[\[target\]\] gfx1010: .*`mass`"):
        rows("gpus", "target", Row)


def test_a_setting_with_an_unknown_field_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"name": "slow-lane", "backends": ["miopen"], "set": "all", "reason": "a typo", "costs": "speed"}
    monkeypatch.setattr(settings, "table", lambda name: {"setting": [row], "search": []})
    with pytest.raises(ValueError, match=r"^data/settings\.toml: \[\[setting\]\] slow-lane: .*`costs`"):
        settings.all_settings()
