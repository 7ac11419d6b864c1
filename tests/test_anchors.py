"""Strings that a match of a signature contains: never wrong, and there for nearly every signature."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sample_logs import LINES

from rocmprobe.explain.anchors import anchors
from rocmprobe.explain.signatures import found, signatures
from rocmprobe.text.log import of_text

CORPUS = Path(__file__).parents[2] / "shared" / "corpus" / "train.jsonl"


@pytest.mark.parametrize(
    ("pattern", "strings"),
    [
        ("invalid device function", ("invalid device function",)),
        (r"a\.dat: (No|no) such|second text", ("a.dat: ", "second text")),
        ("(first one|other)", ("first one", "other")),
        ("(?:first one|other)s", ("first one", "other")),
        ("colou?r", ("colo",)),
        ("x{2}long enough", ("long enough",)),
        (r"[a)|]{3}tail\b", ("tail",)),
        ("[]abc]some", ("some",)),
        (r"lib\w+\.so", ("lib",)),
        ("(maybe this)?ab", None),
        ("(?i)any case", None),
        ("text|.", None),
        (r"\(left", ("(left",)),
        ("noo+t", ("noo",)),
    ],
)
def test_strings_of_a_pattern(pattern: str, strings: tuple[str, ...] | None) -> None:
    assert anchors(pattern) == strings


def lines() -> list[str]:
    texts = [LINES]
    if CORPUS.is_file():
        logs = (json.loads(row)["log"] for row in CORPUS.read_text("utf-8").splitlines())
        texts += [[line.text for line in of_text(log).lines] for log in logs]
    return [line for text in texts for line in text]


def test_each_match_contains_one_of_the_strings() -> None:
    matches = 0
    for signature in signatures():
        for line in lines():
            if signature.regex.search(line):
                matches += 1
                assert signature.anchors is None or any(each in line for each in signature.anchors), line
    assert matches > 50


def test_a_long_log_is_read_as_a_short_one() -> None:
    telling = "\n".join(LINES)
    padding = "\n".join(f"step {'abcdefgh'[at % 8] * (at % 97)} x" for at in range(9000))
    short = {hit.signature.name for hit in found(of_text(telling).lines)}
    long = {hit.signature.name for hit in found(of_text(f"{telling}\n{padding}").lines)}
    assert short == long
