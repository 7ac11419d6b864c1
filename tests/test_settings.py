"""Settings: what each row holds, and how users name them."""

from __future__ import annotations

import re

import pytest

from rocmprobe.backends import BACKENDS
from rocmprobe.model import VERDICTS, BadInput
from rocmprobe.settings import all_settings, drivers_of, settings_for

ROWS = all_settings()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].name)
class TestEveryRow:
    def test_has_a_reason_and_a_source(self, row):
        setting, backends, group = row
        assert setting.reason
        assert setting.source
        assert set(backends) <= set(BACKENDS)
        assert backends
        assert group in ("default", "all")

    def test_variables_are_text(self, row):
        for name, value in row[0].env.items():
            assert isinstance(value, str)
            assert name == name.upper()

    def test_verdict_follows_from_what_it_does(self, row):
        setting = row[0]
        expected = "native"
        if setting.device == "cpu":
            expected = "cpu"
        elif setting.bypass:
            expected = "bypass"
        elif not setting.vendor_library:
            expected = "vendor-off"
        elif setting.env or setting.torch or setting.interface:
            expected = "native-with-settings"
        assert setting.verdict == expected
        assert setting.verdict in VERDICTS

    def test_flags_are_those_that_a_worker_knows(self, row):
        flags = pytest.importorskip("rocmprobe.worker.setting").FLAGS
        assert set(row[0].torch) <= set(flags)

    def test_since_is_a_version(self, row):
        assert re.fullmatch(r"(\d+\.\d+\.\d+)?", row[0].since)

    def test_find_modes_are_numbers(self, row):
        # A word that a version does not know raises in MIOpen; a number never does.
        for name in ("MIOPEN_FIND_MODE", "MIOPEN_FIND_ENFORCE"):
            assert row[0].env.get(name, "1").isdigit()

    def test_is_found_by_its_name(self, row):
        setting, backends, _ = row
        for backend in backends:
            # The word "default" alone names a set; the setting of that name is in every list.
            found = settings_for(backend, f"default,{setting.name}")
            assert setting in found
            assert {each.name for each in found} == {"default", setting.name}


def test_names_are_unique():
    for backend in BACKENDS:
        names = [setting.name for setting in settings_for(backend, "all")]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wanted", ["default", "all"])
def test_sets_hold_what_every_answer_needs(backend, wanted):
    names = [setting.name for setting in settings_for(backend, wanted)]
    assert names[0] == "default"
    assert {"default", "vendor-off", "bypass"} <= set(names)


def test_the_default_set_stays_small():
    assert len(settings_for("miopen")) <= 13


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_default_set_is_part_of_all(backend):
    assert set(map(repr, settings_for(backend))) < set(map(repr, settings_for(backend, "all")))


@pytest.mark.parametrize(
    "wanted", ["bypass", " bypass , vendor-off", "bypass,", "bypass,bypass", "default,bypass"]
)
def test_default_is_always_among_them(wanted):
    names = [setting.name for setting in settings_for("miopen", wanted)]
    assert names[0] == "default"
    assert "bypass" in names
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("backend", "wanted"), [("miopen", "bogus"), ("onednn", "bypass,no-winograd"), ("cudnn", "default,cpu2")]
)
def test_an_unknown_name_is_bad_input(backend, wanted):
    with pytest.raises(BadInput) as refusal:
        settings_for(backend, wanted)
    assert repr(wanted.rpartition(",")[2]) in str(refusal.value)
    assert "vendor-off" in str(refusal.value)


class TestDrivers:
    def test_without_torch_only_variables_and_interfaces_mean_something(self):
        for setting in settings_for("miopen", "all", ["capi"]):
            assert not setting.bypass
            assert setting.vendor_library
            assert setting.device is None
            assert setting.interface or not setting.torch
            assert "capi" in drivers_of(setting)

    def test_find_2_is_asked_without_torch_alone(self):
        names = {driver: {each.name for each in settings_for("miopen", "all", [driver])}
                 for driver in ("torch", "capi")}  # fmt: skip
        assert "find-2.0" in names["capi"] - names["torch"]
        assert {"bypass", "vendor-off", "cpu", "deterministic"} <= names["torch"] - names["capi"]
        assert {"default", "immediate", "gemm-only", "as-found"} <= names["capi"] & names["torch"]

    def test_a_name_of_the_other_driver_is_bad_input(self):
        with pytest.raises(BadInput, match="by the driver capi has no setting 'bypass'"):
            settings_for("miopen", "bypass", ["capi"])
        with pytest.raises(BadInput, match=r"miopen has no setting 'find-2\.0'"):
            settings_for("miopen", "find-2.0", ["torch"])
