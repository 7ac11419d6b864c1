"""What chip and stack can do together: the table, the relations, and pairs that somebody tried."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import CHECKOUT

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.causes import causes
from rocmprobe.knowledge.compatibility import (
    _CHECKS,
    FIRST,
    Combination,
    answer,
    answers,
    failing,
    first_device,
    of_machine,
    relations,
)
from rocmprobe.knowledge.stacks import SYSTEMS, broken, has_code, stacks
from rocmprobe.model.results import Fact, Gpu, Machine
from rocmprobe.text.tables import table
from rocmprobe.text.versions import version_numbers, within

CAUSES = {cause.name for cause in causes()}
GFX = [target.gfx for target in gpus.all_targets()]


def documents_module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, CHECKOUT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAIRS = documents_module("pairs")


class TestTable:
    def test_relations_match_functions_and_versions_are_in_order(self) -> None:
        # Relations and functions match one to one.
        assert [row.name for row in relations()] == list(_CHECKS)

        # Versions are in their order.
        for row in table("compatibility")["kernel"]:
            assert version_numbers(row["before"]) < version_numbers(row["since"])
        for row in table("compatibility")["library"]:
            assert not row["until"] or version_numbers(row["since"]) <= version_numbers(row["until"])

    @pytest.mark.parametrize("row", relations())
    def test_every_relation_has_a_source_and_words_of_the_vocabularies(self, row) -> None:
        assert row.source
        assert row.asks.endswith("?")

    @pytest.mark.parametrize("name", ["primitive", "kernel", "runtime", "library"])
    def test_every_row_has_a_source_and_chips_that_exist(self, name: str) -> None:
        for row in table("compatibility")[name]:
            assert row["source"]
            assert row["gfx"]
            assert [gfx for gfx in gpus.expand(row["gfx"]) if not _known(gfx)] == []

    @pytest.mark.parametrize("name", ["kernel", "runtime"])
    def test_a_chip_is_in_one_row(self, name: str) -> None:
        chips = [gfx for row in table("compatibility")[name] for gfx in row["gfx"]]
        assert len(chips) == len(set(chips))

    def test_every_row_of_a_library_can_be_met(self) -> None:
        """The first that covers a release counts: a row that is hidden behind another says nothing."""
        seen: set[tuple[str, str]] = set()
        for row in table("compatibility")["library"]:
            newest = row["until"] or row["since"]
            assert (row["library"], newest) not in seen
            for release in (row["since"], newest):
                seen.add((row["library"], release))
        newest_rocm = Combination(gfx="gfx1011", effective="gfx1011", rocm="10.1")
        found = answer(newest_rocm, "rocblas-has-kernels")
        assert found is not None
        assert found.holds
        assert "therock-7.14" in found.source

    def test_faults_of_stacks_name_the_releases_whose_rocblas_lacks_the_chip(self) -> None:
        releases = [row["rocm"] for row in table("rocm_releases")["release"]]
        for row in broken():
            for gfx in row.gfx if row.cause == "rocblas-missing-arch" else ():
                for rocm in releases:
                    if within(rocm, row.rocm_since, row.rocm_until):
                        found = answer(Combination(gfx=gfx, rocm=rocm), "rocblas-has-kernels")
                        assert found is not None
                        assert not found.holds, (row.title, rocm)

    def test_the_newest_rocblas_is_for_the_chips_of_amds_wheels(self) -> None:
        (newest,) = (
            row["gfx"] for row in table("compatibility")["library"]
            if row["library"] == "rocblas" and not row["until"]
        )  # fmt: skip
        of_amd = [stack for stack in stacks() if stack.kind.startswith("amd-")]
        assert set(newest) == {gfx for gfx in GFX if any(has_code(stack, gfx) for stack in of_amd)}


def _known(gfx: str) -> bool:
    # Targets of early MI300 are in lists of releases, and are no product.
    return gpus.target(gfx) is not None or gfx in ("gfx940", "gfx941", "gfx909")


FIELDS = {
    "amd": st.just(True),
    "gfx": st.sampled_from(GFX),
    "effective": st.sampled_from(GFX),
    "override": st.sampled_from(["10.3.0", "11.0.0", "9.0.0", "gfx1030", "10.3"]),
    "torch": st.sampled_from(
        ["1.13.1+rocm5.2", "2.2.0", "2.4.0+cu121", "2.5.0+cpu", "2.7.1+rocm6.3", "2.12.0+rocm10.1.0"]
    ),
    "rocm": st.sampled_from(["4.5", "5.2", "5.7.1", "6.1", "6.4.1", "7.2", "10.1"]),
    "kernel": st.sampled_from(["5.4.0-99", "5.15.0", "6.1.0-13-amd64", "6.8.12", "6.14"]),
    "system": st.sampled_from(SYSTEMS),
    "torch_targets": st.lists(st.sampled_from(GFX), min_size=1, max_size=4).map(tuple),
    "rocblas_targets": st.lists(st.sampled_from(GFX), min_size=1, max_size=4).map(tuple),
    "atomics": st.booleans(),
    "primitive": st.sampled_from(["batch-norm", "rnn", "convolution"]),
    "package": st.sampled_from(["gfx110X", "gfx1151", "gfx1100 gfx1101"]),
    "torch_kind": st.sampled_from(["rocm", "cuda", "cpu"]),
    "first": st.sampled_from(FIRST),
}
WHOLE = st.fixed_dictionaries(FIELDS)
#: Facts that say the same thing better: what is installed beats its name, as does an override the silicon.
BETTER = {"effective", "torch_kind"}


@pytest.mark.parametrize(
    ("relation", "gfx", "rocm", "holds"),
    [
        ("miopen-has-databases", "gfx1100", "7.13", False),
        ("miopen-has-databases", "gfx1100", "10.0", True),
        ("miopen-has-databases", "gfx1151", "10.0", False),
        ("miopen-has-databases", "gfx1200", "10.1", True),
        ("miopen-has-databases", "gfx1010", "10.1", False),
        ("rocblas-has-kernels", "gfx906", "6.3", True),
        ("rocblas-has-kernels", "gfx906", "7.1", False),
        ("rocblas-has-kernels", "gfx906", "7.14", True),
    ],
)
def test_what_a_library_holds_depends_on_its_release(relation, gfx, rocm, holds):
    asked = Combination(amd=True, gfx=gfx, effective=gfx, rocm=rocm, torch_kind="rocm", system="linux")
    found = answer(asked, relation)
    assert found is not None
    assert found.holds is holds


class TestProperties:
    def test_every_field_counts_and_unknown_facts_answer_nothing(self) -> None:
        # Every field is asked.
        assert set(FIELDS) == {field.name for field in dataclasses.fields(Combination)}

        # Unknown facts answer nothing.
        assert answers(Combination()) == ()
        assert answers(Combination(amd=True)) == ()
        assert answers(Combination(gfx="gfx9999", effective="gfx9999", rocm="6.3", torch="2.7.1")) == ()

    @given(WHOLE)
    def test_answers_are_whole(self, known) -> None:
        for each in answers(Combination(**known)):
            assert each.says
            assert each.source
            assert not each.says.endswith(".")
            assert not each.cause or each.cause in CAUSES
        assert {each.relation.name for each in failing(answers(Combination(**known)))} <= set(_CHECKS)

    @given(WHOLE, st.sets(st.sampled_from(sorted(set(FIELDS) - BETTER))))
    def test_more_facts_never_turn_a_certain_answer_around(self, known, left_out) -> None:
        less = Combination(**{name: value for name, value in known.items() if name not in left_out})
        more = Combination(**known)
        for each in answers(less):
            if each.certain:
                again = answer(more, each.relation.name)
                assert again is not None
                assert (again.holds, again.certain) == (each.holds, True)

    @given(WHOLE)
    def test_what_is_read_on_the_machine_beats_what_was_published(self, known) -> None:
        found = {each.relation.name: each for each in answers(Combination(**known))}
        assert "wheel-has-code" not in found
        assert "amd-wheel-has-code" not in found
        assert found["torch-has-code"].certain
        assert found["rocblas-has-kernels"].certain


class TestMachine:
    CARD = Gpu(
        vendor=Fact("amd"), native_isa=Fact("gfx1010"), effective_isa=Fact("gfx1030"), order=Fact(1),
        index=Fact(1), apu=Fact(False), pcie_atomics=Fact(True),
    )  # fmt: skip
    INTEGRATED = Gpu(
        vendor=Fact("amd"), native_isa=Fact("gfx1036"), order=Fact(0), index=Fact(0), apu=Fact(True)
    )

    def test_a_machine_becomes_a_combination(self) -> None:
        facts = {
            "torch.version": "2.0.1+rocm5.4.2", "torch.kind": "rocm", "torch.hip": "5.4.22804",
            "torch.targets": ["gfx1030"], "kernel.release": "6.8.0-40-generic",
            "os.name": "Ubuntu 22.04.5 LTS",
        }  # fmt: skip
        machine = Machine(
            (self.CARD, self.INTEGRATED),
            {name: Fact(value, "the test") for name, value in facts.items()},
            {"HSA_OVERRIDE_GFX_VERSION": Fact("10.3.0", "environment")},
        )
        assert of_machine(machine, self.CARD) == Combination(
            amd=True, gfx="gfx1010", effective="gfx1030", override="10.3.0", torch="2.0.1+rocm5.4.2",
            rocm="5.4.22804", kernel="6.8.0-40-generic", system="linux", torch_targets=("gfx1030",),
            atomics=True, torch_kind="rocm", first="processor",
        )  # fmt: skip

        # Nothing is known of an empty machine.
        assert answers(of_machine(Machine((), {}, {}), Gpu())) == ()

    @pytest.mark.parametrize(
        ("card", "integrated", "first"),
        [(1, 0, "processor"), (0, 1, "card"), (0, None, "card"), (None, 0, "processor"), (None, None, None)],
    )
    def test_which_device_is_the_first(self, card, integrated, first) -> None:
        gpus = (
            dataclasses.replace(self.CARD, index=Fact(card)),
            dataclasses.replace(self.INTEGRATED, index=Fact(integrated)),
        )
        assert first_device(Machine(gpus, {}, {})) == first
        assert first_device(Machine(gpus[:1], {}, {})) is None


class TestPairs:
    def test_the_table_is_whole_and_knows_most_failures(self) -> None:
        # The table is whole.
        assert len(PAIRS.pairs()) >= 40
        for row in PAIRS.pairs():
            assert gpus.target(row["gfx"])
            assert row["system"] in SYSTEMS
            assert row["outcome"] in ("works", "fails")
            assert row["text"]
            assert "https://" in row["source"]
            assert re.fullmatch(r"20\d\d(-\d\d){0,2}", row.get("date", "2020"))
            assert row.get("torch") or row.get("rocm")
            assert row.get("built", "self") in ("official", "amd", "distribution", "community", "self")

        # Most failures are known.
        failed = [PAIRS.said(row)[0] for row in PAIRS.pairs() if row["outcome"] == "fails"]
        assert failed.count("agrees") >= len(failed) // 2

    @pytest.mark.parametrize("row", PAIRS.pairs())
    def test_what_works_is_not_called_impossible(self, row) -> None:
        verdict, found = PAIRS.said(row)
        assert (verdict == "contradicts") == ("differs" in row), [each.says for each in found]
        if verdict == "agrees" and row["outcome"] == "fails":
            assert all(not each.holds and each.stops for each in found)
