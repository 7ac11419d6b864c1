"""Settings: what each row holds, and how users name them."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rocmprobe.backends import BACKENDS
from rocmprobe.engine.ladder import RUNGS
from rocmprobe.knowledge.settings import (
    Versions,
    all_settings,
    compose,
    reason_without_effect,
    search_flags,
    settings_for,
    title,
    with_cures,
)
from rocmprobe.knowledge.variables import find
from rocmprobe.model.results import BadInput
from rocmprobe.report.terminal import settings_table
from rocmprobe.report.terminal.tables import TABLES
from rocmprobe.torch_flags import FLAGS

ROWS = all_settings()
OLD = Versions("MIOpen", "2.17.0", "1.13.1+rocm5.2", "5.2.21151-afdc89f8")
MIDDLE = Versions("MIOpen", "3.3.0", "2.7.0+rocm6.3", "6.3.42131")
NEW = Versions("MIOpen", "3.5.1", "2.10.0+rocm7.1", "7.1.25424")
KNOWN = (OLD, MIDDLE, NEW)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-gemm", "GEMM switched off"),
        ("no-sdma+no-gemm", "SDMA engines switched off and GEMM switched off"),
        ("bypass+vendor-off", "rocmprobe's bypass with the vendor library off"),
        ("of-an-older-release", "of-an-older-release"),
    ],
)
def test_a_setting_has_a_title_for_owners(name, words):
    assert title(name) == words


def test_no_two_settings_share_a_title():
    titles = {setting.name: title(setting.name) for setting, _, _ in ROWS}
    assert len(set(titles.values())) == len(titles)


class TestEveryRow:
    @pytest.mark.parametrize("row", ROWS)
    def test_has_a_reason_and_a_source(self, row):
        setting, backends, group = row
        assert setting.reason
        # It is told on any chip, and of a run without PyTorch, too.
        assert "gfx" not in setting.reason
        assert setting.source
        assert set(backends) <= set(BACKENDS)
        assert backends
        assert group in ("default", "all", "cure")

    @pytest.mark.parametrize("row", ROWS)
    def test_its_fields_hold_what_they_may(self, row):
        # Variables are text.
        for name, value in row[0].env.items():
            assert isinstance(value, str)
            assert name == name.upper()

        # Ranges are of versions.
        setting = row[0]
        for text in (setting.since, setting.until, setting.torch_since, setting.torch_until):
            assert re.fullmatch(r"(\d+\.\d+(\.\d+)?)?", text)
        assert setting.search in ("", "find", "immediate", "exhaustive")

        # Find mode goes with find.
        # In immediate mode it does nothing, and under benchmark newer torches override it.
        assert row[0].search == "find" or "MIOPEN_FIND_MODE" not in row[0].env

        # Find modes are numbers.
        # A word that a version does not know raises in MIOpen; a number never does.
        for name in ("MIOPEN_FIND_MODE", "MIOPEN_FIND_ENFORCE"):
            assert row[0].env.get(name, "1").isdigit()

    @pytest.mark.parametrize("row", ROWS)
    def test_flags_are_those_that_a_worker_knows(self, row):
        assert set(row[0].torch) <= set(FLAGS)

    @pytest.mark.parametrize("row", ROWS)
    def test_means_nothing_or_has_its_flags(self, row):
        setting, backends, _ = row
        for torch in ("1.13.1+rocm5.2", "2.6.0", "2.7.1", "2.8.0", "2.9.0", "2.13.0+cpu"):
            here = settings_for(backends[0], setting.name, torch)[-1]
            if here.search and not reason_without_effect(here, Versions("MIOpen", torch=torch)):
                assert here.torch == search_flags(here.search, torch) != {}, torch

    @pytest.mark.parametrize("row", ROWS)
    def test_a_version_within_its_ranges_accepts_every_value(self, row):
        for versions in KNOWN:
            why = reason_without_effect(row[0], versions)
            assert why is None or re.search("does not know this|not read before ROCm", why), versions

    @pytest.mark.parametrize("row", ROWS)
    def test_is_found_by_its_name(self, row):
        setting, backends, _ = row
        for backend in backends:
            # The word "default" alone names a set; the setting of that name is in every list.
            found = settings_for(backend, f"default,{setting.name}")
            assert setting in found
            assert {each.name for each in found} == {"default", setting.name}


def test_names_are_unique_and_the_default_set_small():
    # Names are unique.
    for backend in BACKENDS:
        names = [setting.name for setting in settings_for(backend, "all")]
        assert len(set(names)) == len(names)

    # The default set stays small.
    assert len([setting for setting in settings_for("miopen") if not setting.by_name]) <= 15


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wanted", ["default", "all"])
def test_sets_hold_what_every_answer_needs(backend, wanted):
    names = [setting.name for setting in settings_for(backend, wanted)]
    assert names[0] == "default"
    assert {"default", "vendor-off", "bypass"} <= set(names)


class TestCures:
    @pytest.mark.parametrize("row", [row for row in ROWS if row[0].cures])
    def test_a_cure_has_a_cost_and_a_known_rung(self, row):
        setting = row[0]
        assert setting.cost
        rungs = {rung.name for rung in RUNGS} | {"data-loader"}
        assert set(setting.cures) <= rungs
        # A setting that is derived during the run cannot be tried while the ladder is climbed.
        assert not setting.derived

    @pytest.mark.parametrize("row", [row for row in ROWS if row[2] == "cure"])
    def test_a_row_used_only_as_a_cure_is_in_no_comparison(self, row):
        setting, backends, _ = row
        assert setting.cures
        for backend in backends:
            compared = {each.name for wanted in ("default", "all") for each in settings_for(backend, wanted)}
            assert setting.name not in compared
            assert setting.name in {each.name for each in with_cures(backend, "default")}

    @pytest.mark.parametrize("row", [row for row in ROWS if row[0].excludes])
    def test_an_excluded_setting_exists_and_excludes_the_other(self, row):
        excludes = {setting.name: setting.excludes for setting, _, _ in ROWS}
        for name in row[0].excludes:
            assert row[0].name in excludes[name], name
            with pytest.raises(BadInput, match="exclude each other"):
                settings_for("miopen", f"{row[0].name}+{name}")

    @pytest.mark.parametrize(
        "names",
        [
            "find-fast+find-normal", "tuned+immediate", "override-gfx900+override-gfx1030",
            "no-override+override-gfx1030", "aotriton-experimental+no-aotriton-experimental",
        ],
    )  # fmt: skip
    def test_settings_that_give_a_variable_two_values_exclude_each_other(self, names):
        for name in (names, "+".join(reversed(names.split("+")))):
            with pytest.raises(BadInput, match="exclude each other"):
                settings_for("miopen", name, "2.6.0")

    @pytest.mark.parametrize("name", ["float64", "no-faulty-solvers"])
    def test_a_setting_whose_effect_would_be_lost_is_not_combined(self, name):
        with pytest.raises(BadInput, match=f"the setting {name} cannot be combined"):
            settings_for("miopen", f"no-gemm+{name}")

    def test_derived_variables_can_be_combined(self):
        rows = {setting.name: setting for setting in settings_for("miopen", "all")}
        derived = replace(rows["no-faulty-solvers"], env={"MIOPEN_DEBUG_CONV_WINOGRAD": "0"})
        combined = compose([rows["no-gemm"], derived])
        assert combined.env == {"MIOPEN_DEBUG_CONV_GEMM": "0", "MIOPEN_DEBUG_CONV_WINOGRAD": "0"}

    @pytest.mark.parametrize("row", [row for row in ROWS if row[0].unset])
    def test_a_variable_that_is_unset_is_in_the_catalogue(self, row):
        for name in row[0].unset:
            assert find(name).of not in ("nobody", "process"), name

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_larger_changes_come_later(self, backend):
        """Order cures: those in the vendor library, slow ones, the library off, the bypass, the CPU."""

        def size(setting):
            later = (
                setting.slow,
                bool(setting.pytorch_layers),
                not setting.vendor_library,
                setting.bypass,
                setting.device == "cpu",
            )
            return max((place for place, holds in enumerate(later, 1) if holds), default=0)

        for rung in RUNGS:
            sizes = [size(each) for each in with_cures(backend, "default") if rung.name in each.cures]
            assert sizes == sorted(sizes), rung.name

    def test_every_rung_of_a_gpu_has_a_cure(self):
        cures = {rung for each in with_cures("miopen", "default") for rung in each.cures}
        assert {rung.name for rung in RUNGS} <= cures


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
    assert re.search("did you mean |; it has .*vendor-off", str(refusal.value))


def of(name, versions):
    return next(each for each in settings_for("miopen", "all", versions.torch) if each.name == name)


class TestSearch:
    """How PyTorch asks MIOpen for a solver, by its own version."""

    @pytest.mark.parametrize(
        ("torch", "flags"),
        [
            ("1.13.1+rocm5.2", {"cudnn.benchmark": True}),
            ("2.6.0+rocm6.2.4", {"cudnn.benchmark": True}),
            ("2.7.0", {"cudnn.benchmark": False, "cudnn.deterministic": False}),
            ("2.8.0.dev20250601", {"cudnn.benchmark": False, "cudnn.deterministic": False}),
            ("2.9.0", {"cudnn.benchmark": False}),
            (None, {"cudnn.benchmark": False}),
        ],
    )
    def test_find(self, torch, flags):
        for name in ("find-normal", "find-fast", "find-hybrid", "find-dynamic-hybrid", "trust-verify"):
            setting = next(each for each in settings_for("miopen", "all", torch) if each.name == name)
            assert (setting.search, setting.torch) == ("find", flags)

    @pytest.mark.parametrize(
        ("torch", "flags"),
        [
            ("1.13.1", {"cudnn.benchmark": False}),
            ("2.6.0", {"cudnn.benchmark": False}),
            ("2.7.0", {"cudnn.benchmark": False, "cudnn.deterministic": True}),
            ("2.9.0", {"miopen.immediate": True}),
        ],
    )
    def test_immediate(self, torch, flags):
        assert next(each for each in settings_for("miopen", "immediate", torch)[1:]).torch == flags

    def test_older_versions_lack_some_ways(self):
        # Exhaustive is plain find before 2 7.
        assert reason_without_effect(of("exhaustive-find", OLD), OLD) == (
            "torch 1.13.1+rocm5.2 does not know this; 2.7 is the first that does"
        )
        assert of("exhaustive-find", MIDDLE).torch == {"cudnn.benchmark": True}

        # A torch before 1 13 has only one way.
        ancient = Versions("MIOpen", "2.16.0", "1.12.1+rocm5.1.1", "5.1.20531")
        assert "no flags" in (reason_without_effect(of("immediate", ancient), ancient) or "")


def test_every_setting_of_a_cpu_has_a_measured_cost():
    root = Path(__file__).parents[1]
    result = (root / "benchmarks" / "results" / "settings_cost.md").read_text("utf-8")
    rows = re.findall(r"^\| ([a-z0-9-]+) \| \d", result, re.MULTILINE)
    assert set(rows) == {each.name for each in settings_for("onednn", "all")} - {"as-found", "float64"}


def test_the_list_shows_what_the_document_shows():
    console = Console(width=1000)
    with console.capture() as captured:
        console.print(TABLES["settings"]())
    shown = " ".join(captured.get().split())
    for row in settings_table.rows():
        for part in (row.name, row.title, row.where, row.why, row.cost, *row.sets):
            assert part in shown
    for rung, names in settings_table.cure_rows():
        assert f"cures of the rung {rung}, smallest change first: {names}" in shown
    assert "torch 1.13 to 2.6: torch.backends.cudnn.benchmark = True" in shown


class TestMeaningless:
    @pytest.mark.parametrize(
        ("versions", "names"),
        [
            (OLD, {"trust-verify", "exhaustive-find", "tuned", "no-hipblaslt", "triton-no-buffer-ops"}),
            (MIDDLE, {"trust-verify"}),
            (NEW, set()),
            (Versions("MIOpen", "3.5.2", "2.12.0+rocm7.14.0", "7.14.60850"), {"ocl-direct-only"}),
        ],
    )
    def test_settings_of_miopen_by_version(self, versions, names):
        settings = settings_for("miopen", "all", versions.torch)
        assert {each.name for each in settings if reason_without_effect(each, versions)} == names

    def test_versions_decide_in_whole_minor_releases(self):
        # What is not known forbids nothing.
        nothing = Versions("MIOpen")
        assert [
            each.name for each in settings_for("miopen", "all") if reason_without_effect(each, nothing)
        ] == []

        # A patch release is within its minor release.
        setting = dataclasses.replace(of("ocl-direct-only", MIDDLE), until="3.4")
        assert reason_without_effect(setting, dataclasses.replace(MIDDLE, library_version="3.4.9")) is None
        assert reason_without_effect(setting, dataclasses.replace(MIDDLE, library_version="3.5.0")) == (
            "MIOpen 3.5.0 does not know this any more; 3.4 was the last that did"
        )

    def test_variables_that_the_version_refuses_or_does_not_read(self):
        # A value that the version refuses.
        words = dataclasses.replace(of("default", NEW), env={"MIOPEN_FIND_MODE": "SIDEWAYS"})
        assert "stoul" in (reason_without_effect(words, NEW) or "")

        # Variables that the version does not read.
        setting = dataclasses.replace(of("default", OLD), env={"MIOPEN_DEBUG_CONV_DIRECT_HIP_FWD": "0"})
        assert (
            reason_without_effect(setting, OLD)
            == "MIOPEN_DEBUG_CONV_DIRECT_HIP_FWD: not read before ROCm 7.14"
        )
        with_another = {**setting.env, "MIOPEN_DEBUG_CONV_GEMM": "0"}
        assert reason_without_effect(dataclasses.replace(setting, env=with_another), OLD) is None


@pytest.mark.parametrize("backend", ["miopen", "onednn"])
def test_the_control_is_in_a_dtype_that_never_enters_the_library(backend):
    control = next(each for each in settings_for(backend, "all") if each.name == "float64")
    assert (control.dtype, control.env, control.torch) == ("float64", {}, {})


def test_channels_last_reaches_miopen_by_its_variable():
    rows = {backend: settings_for(backend, "channels-last")[1] for backend in BACKENDS}
    assert all(row.channels_last for row in rows.values())
    assert rows["miopen"].env == {"PYTORCH_MIOPEN_SUGGEST_NHWC": "1"}
    assert rows["cudnn"].env == rows["onednn"].env == {}
