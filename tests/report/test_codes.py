"""Short codes of settings in column headers and beside bars."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.knowledge.settings import all_settings
from rocmprobe.report.codes import short_codes


@pytest.mark.parametrize(
    ("name", "code"),
    [("default", "De"), ("vendor-off", "VO"), ("bypass+vendor-off", "BVO"), ("cpu", "CPU"), ("§", "?")],
)
def test_initials_or_the_beginning(name: str, code: str) -> None:
    assert short_codes([name]) == {name: code}


def test_the_settings_of_the_package_have_short_codes() -> None:
    codes = short_codes(setting.name for setting, _, _ in all_settings())
    assert max(map(len, codes.values())) <= 4


@given(st.lists(st.text(), unique=True))
def test_no_two_are_the_same(names: list[str]) -> None:
    codes = short_codes(names)
    assert list(codes) == names
    assert len(set(codes.values())) == len(names)
