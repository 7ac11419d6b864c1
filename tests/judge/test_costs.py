"""Costs of the correct settings."""

from __future__ import annotations

from rows import every_row
from synthetic import recommend, run

TIMES = {"default": (1.0, 0.99, 1.01), "vendor-off": (2.0, 1.99, 2.01), "bypass": (3.0, 2.99, 3.01)}


def test_costs_are_relative_to_the_unchanged_setting_and_name_the_recommended_first():
    found = recommend(run(wanted=",".join(TIMES), seconds=TIMES)).costs
    assert found is not None
    assert (found.dtype, found.reference, found.busy) == ("float32", "default", False)
    assert [row.setting for row in found.rows if row.recommended] == [found.rows[0].setting] == ["default"]
    times = {row.setting: round(row.time, 1) for row in found.rows if row.time is not None}
    assert (times["default"], times["vendor-off"], times["bypass"]) == (1.0, 2.0, 3.0)
    assert all(row.low <= row.time <= row.high for row in found.rows if row.time is not None)


@every_row("changes", [{"*/convolution/*": "wrong"}, {"*/throughput/*": "skipped", "*/memory/*": "skipped"}])
def test_without_two_measured_settings_there_are_no_costs(changes):
    assert recommend(run(changes)).costs is None
