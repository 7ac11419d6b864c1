"""The calls of the driver capi, as a controller keeps them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stand_in_libraries import build

from rocmprobe.backends.capi import places
from rocmprobe.checks.tools.case import Case
from rocmprobe.engine import libraries
from rocmprobe.engine.evidence import Calls
from rocmprobe.engine.journal import Journal
from rocmprobe.engine.options import Budgets
from rocmprobe.engine.targets import Device
from rocmprobe.engine.trial import Trials
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.results import NothingToTest


def told(*events):
    calls = Calls()
    for function, number in events:
        calls.add(
            {"function": function, "number": number, "name": "hipSuccess" if number == 0 else "hipError"}
        )
    return calls


def test_calls_that_follow_each_other_and_are_alike_are_one():
    calls = told(("hipFree", None), ("hipFree", 0), ("hipFree", None), ("hipFree", 0), ("hipFree", 1))
    assert calls.as_lines() == ("hipFree: hipSuccess (0), 2 times", "hipFree: hipError (1)")
    assert (calls.last, calls.where) == ("hipFree: hipError (1)", "")


def test_one_that_does_not_return_is_named():
    calls = told(("hipInit", None), ("hipInit", 0), ("hipMalloc", None))
    assert calls.as_lines() == ("hipInit: hipSuccess (0)", "hipMalloc: did not return")
    assert (calls.last, calls.where) == ("hipMalloc", ", in hipMalloc")
    assert told().last is None


def test_no_more_than_some_hundred_are_kept():
    calls = told(*((f"call{number}", 0) for number in range(500)))
    assert len(calls.as_lines()) == 401
    assert calls.as_lines()[-1] == "[100 calls left out]"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = build(tmp_path_factory.mktemp("libraries"))
    [found] = places({"LD_LIBRARY_PATH": str(folder)}, Path("/nowhere"), [])
    return found


@pytest.mark.thorough
def test_a_call_that_hangs_is_named(place, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", place.folder)
    monkeypatch.setenv("LC_STAND_IN_FAULTS", "miopenCreate=hang")
    budgets = Budgets(start=60, first_call=3, steady=60, teardown=10, measure=0.1)
    target = Device("cuda:0", "miopen", None, ("capi",), place)
    settings = {setting.name: setting for setting in settings_for("miopen", "default", drivers=["capi"])}
    trials = Trials({"cuda:0": target}, {"cuda:0": settings}, budgets, None, Journal(tmp_path, True))
    case = Case("cuda:0", "capi", "default", "batch-norm", "float32")
    try:
        outcome = trials.outcome(case)
    finally:
        trials.close(at_once=True)
    assert (outcome.state, outcome.activity, outcome.ending["after"]) == ("hang", "idle", "miopenCreate")
    assert outcome.evidence[0] == "no answer in 3 s in phase first-call, in miopenCreate, idle"
    assert outcome.calls[-1] == "miopenCreate: did not return"


def test_of_a_failure_the_calls_of_the_last_try_are_kept_and_the_phase_in_which_it_fell(
    place, tmp_path, monkeypatch
):
    monkeypatch.setenv("LD_LIBRARY_PATH", place.folder)
    monkeypatch.setenv("LC_STAND_IN_FAULTS", "miopenBatchNormalizationForwardTraining=status:7")
    target = Device("cuda:0", "miopen", None, ("capi",), place)
    settings = {setting.name: setting for setting in settings_for("miopen", "default", drivers=["capi"])}
    budgets = Budgets(start=60, first_call=60, steady=60, teardown=10, measure=0.1)
    trials = Trials({"cuda:0": target}, {"cuda:0": settings}, budgets, None, Journal(tmp_path, True))
    try:
        outcome = trials.outcome(Case("cuda:0", "capi", "default", "batch-norm", "float32"))
    finally:
        trials.close(at_once=True)
    assert (outcome.state, len(outcome.attempts), outcome.phase) == ("error", 3, "first-call")
    failed = "miopenBatchNormalizationForwardTraining: miopenStatusUnknownError (7)"
    assert outcome.calls.count(failed) == 1
    # The canary's copy, after the try, is not of it.
    assert outcome.calls[-1].startswith("miopenDestroyTensorDescriptor")


class TestAskingHip:
    def test_what_it_says(self, place):
        answer = libraries.query_hip(place)
        [device] = answer.devices
        assert (device["arch"], device["name"]) == ("gfx1030", "Stand-in Radeon")
        assert answer.versions == {"hip": "6.4.43484", "rocblas": "4.4.0.stand-in", "miopen": "3.4.0"}
        assert answer.mapped["libMIOpen"] == (os.path.realpath(place.files["libMIOpen"]),)
        gpu = answer.gpu(0)
        assert (gpu.effective_isa.value, gpu.native_isa.value, gpu.vendor.value) == ("gfx1030", None, "amd")
        assert "HIP" in gpu.effective_isa.source

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("faults", "seconds", "message"),
        [
            ("hipInit=hang", 3.0, "the process that called it ended in hipInit: no answer in 3 s"),
            ("hipGetDevicePropertiesR0600=abort", 60.0, "ended in hipGetDevicePropertiesR0600: SIGABRT"),
            ("hipSetDevice=status:98", 60.0, "hipSetDevice: hipErrorInvalidDeviceFunction (98)"),
        ],
    )
    def test_what_goes_wrong_is_one_line(self, place, monkeypatch, faults, seconds, message):
        monkeypatch.setenv("LC_STAND_IN_FAULTS", faults)
        with pytest.raises(NothingToTest) as refusal:
            libraries.query_hip(place, seconds)
        assert message in str(refusal.value)
        assert place.files["libamdhip64"] in str(refusal.value)
        assert "\n" not in str(refusal.value)

    def test_a_library_that_fails_later_costs_its_version_alone(self, place, monkeypatch):
        monkeypatch.setenv("LC_STAND_IN_FAULTS", "miopenGetVersion=segv")
        answer = libraries.query_hip(place)
        assert len(answer.devices) == 1
        assert "miopen" not in answer.versions
