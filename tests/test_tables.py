"""Tables of data: an invalid row is named."""

from __future__ import annotations

import msgspec
import pytest

from rocmprobe.knowledge import settings
from rocmprobe.text.tables import rows


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
