"""What ``--estimate`` takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import every_row

from rocmprobe.model.results import BadInput
from rocmprobe.model.workload import Workload, parse_workload

AMOUNTS = st.integers(1, 10**9)


@given(AMOUNTS, AMOUNTS, st.none() | st.integers(1, 1024), st.permutations(("images", "epochs", "batch")))
def test_keys_come_in_any_order(images: int, epochs: int, batch: int | None, order: list[str]) -> None:
    values = {"images": images, "epochs": epochs, "batch": batch}
    words = [f"{key}={values[key]}" for key in order if values[key] is not None]
    assert parse_workload("  ".join(words)) == Workload(images, epochs, batch)


@every_row(
    ("text", "told"),
    [
        ("", "images and epochs missing"),
        ("images=5", "epochs missing"),
        ("images=5 epochs=2 batch=0", "'batch=0' is not a whole number"),
        ("images=5 epochs=2 batch=1025", "a batch of 1025 is too large; 1024 at most"),
        ("images=5.5 epochs=2", "'images=5.5' is not a whole number"),
        ("images=-5 epochs=2", "'images=-5' is not a whole number"),
        ("images= epochs=2", "'images=' is not a whole number"),
        ("images=5 epochs=2 size=640", "'size=640' is not one of"),
        ("images=5 images=6 epochs=2", "images is given twice"),
        ("5 2", "'5' is not one of"),
    ],
)
def test_bad_input_is_one_line(text: str, told: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_workload(text)
    message = str(raised.value)
    assert told in message
    assert message.startswith("--estimate: ")
    assert "\n" not in message
