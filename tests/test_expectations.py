"""The table of known failures: what makes a row one, and what comes of outcomes that it is about."""

from __future__ import annotations

import dataclasses
from fnmatch import fnmatchcase

import pytest
from packaging.specifiers import SpecifierSet

from rocmprobe.judge.judgement import Expectations
from rocmprobe.knowledge.expectations import expectations, observed, read_expectations
from rocmprobe.knowledge.stacks import broken
from rocmprobe.model.baseline import Baseline, baseline_of
from rocmprobe.model.changes import BASELINE, TABLE
from rocmprobe.model.results import SCHEMA_VERSION, BadInput, Fact, Gpu, Machine, Outcome, Results
from rocmprobe.text.tables import table
from rocmprobe.text.versions import within

ROW = """\
[[expectation]]
id = "card-as-another"
native_isa = ["gfx101*"]
effective_isa = ["gfx1030"]
torch = ">=2.0,<2.2"
rocm = "==5.6"
settings = ["default", "find-*"]
checks = ["convolution"]
kinds = ["conv2d"]
dtypes = ["float16"]
directions = ["fwd"]
problem = "*-f3x3*"
states = ["error", "hang"]
cause = "miopen-solver-bug"
reason = "it fails"
link = "https://example.org/1"
date = "2024-05"
"""
CARD = Machine(
    (Gpu(native_isa=Fact("gfx1010"), name=Fact("Radeon of the tests")),),
    {"torch.version": Fact("2.1.2+rocm5.6"), "torch.hip": Fact("5.6.31061-8c743ae5d"),
     "rocm.version": Fact("6.4.0"), "miopen.version": Fact("2.20.0")},
)  # fmt: skip
FAILED = Outcome(
    "cuda:0/default/convolution/p/fwd", "cuda:0", "default", "convolution", "conv", "error",
    native_isa="gfx1010:xnack-", effective_isa="gfx1030", problem="conv2d-fp16-n1-c4-i8x8-k4-f3x3",
    direction="fwd", dtype="float16", failure="miopen-status", evidence=("miopenStatusUnknownError",),
)  # fmt: skip


def told(
    outcome: Outcome, row: str = ROW, machine: Machine = CARD, baseline: Baseline | None = None
) -> Outcome:
    return Expectations(machine, baseline, read_expectations(row, "t")).marked(outcome)


def changed(**fields: object) -> Outcome:
    return dataclasses.replace(FAILED, **fields)  # type: ignore[arg-type]


def with_facts(**facts: str) -> Machine:
    return dataclasses.replace(
        CARD, facts={name.replace("_", "."): Fact(text) for name, text in facts.items()}
    )


def test_a_known_failure_is_xfail_and_a_pass_is_news() -> None:
    # A known failure is xfail and keeps what it came to.
    outcome = told(FAILED)
    assert outcome.state == "xfail"
    assert outcome.expected is not None
    assert dataclasses.astuple(outcome.expected) == (
        "error", TABLE, "it fails", "https://example.org/1", "miopen-solver-bug",
    )  # fmt: skip
    assert observed(outcome) == FAILED
    assert told(outcome) == outcome

    # A pass is news unless it was known to come and go.
    passed = told(changed(state="slow"))
    assert (passed.state, passed.expected and passed.expected.state) == ("xpass", "slow")
    assert told(changed(state="slow"), ROW + "sometimes = true\n").state == "slow"

    # A star over settings leaves the CPU alone.
    row = ROW.replace('["default", "find-*"]', '["*"]')
    assert told(changed(setting="vendor-off"), row).state == "xfail"
    assert told(changed(setting="cpu"), row).state == "error"


@pytest.mark.parametrize(
    "other",
    [
        {"state": "wrong"}, {"state": "blocked"}, {"state": "aborted", "failure": "run-died"},
        {"native_isa": "gfx1030"}, {"native_isa": None}, {"effective_isa": "gfx1010"},
        {"setting": "vendor-off"}, {"check": "gemm"}, {"dtype": "float32"}, {"direction": "bwd-data"},
        {"problem": "conv2d-fp16-n1-c4-i8x8-k4-f1x1"}, {"problem": "conv1d-fp16-n1-c4-i8-k4-f3x3"},
        {"problem": None},
    ],
)  # fmt: skip
def test_what_a_row_does_not_name_stays_as_it_came(other: dict[str, object]) -> None:
    assert told(changed(**other)) == changed(**other)


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({"torch_version": "2.0.1", "torch_hip": "5.6.1"}, "xfail"),
        ({"torch_version": "2.2.0+rocm5.6", "torch_hip": "5.6.1"}, "error"),
        ({"torch_version": "2.1.2+rocm5.7", "torch_hip": "5.7.1"}, "error"),
        # Without a wheel's own, the installed release is the one that was met.
        ({"torch_version": "2.1.0a0+git1234567", "rocm_version": "5.6.1"}, "xfail"),
        ({"torch_version": "2.1.2"}, "error"),
        ({"torch_version": "none of your business", "torch_hip": "5.6"}, "error"),
    ],
)
def test_versions_decide_and_an_unknown_one_meets_nothing(facts: dict[str, str], state: str) -> None:
    assert told(FAILED, machine=with_facts(**facts)).state == state


@pytest.mark.parametrize(
    ("before", "now", "state", "source"),
    [
        ("crash", "wrong", "xfail", BASELINE),
        # Where both know of it, the table tells more.
        ("crash", "error", "xfail", TABLE),
        ("crash", "pass", "xpass", BASELINE),
        ("flaky", "pass", "pass", None),
        # What worked on this very machine has to go on working, whatever others report.
        ("pass", "error", "error", None),
        ("pass", "slow", "slow", None),
        # Where nothing was learned, the table speaks.
        ("blocked", "error", "xfail", TABLE),
    ],
)
def test_the_baseline_is_asked_first(before: str, now: str, state: str, source: str | None) -> None:
    baseline = Baseline("old.json", "2026-01-01T00:00:00Z", "0", {FAILED.id: before})
    outcome = told(changed(state=now), baseline=baseline)
    assert (outcome.state, outcome.expected and outcome.expected.source) == (state, source)
    assert observed(outcome).state == now
    if source == BASELINE:
        assert told(outcome) == outcome


class TestTheTable:
    def test_every_row_that_ships_is_one(self) -> None:
        assert len(expectations()) > 10
        assert len({row.id for row in expectations()}) == len(expectations())

    def test_a_row_can_refer_to_a_fault_of_a_stack(self) -> None:
        row = (
            'id = "a"\nbroken = "gfx1010-rocblas"\nsettings = ["*"]\nchecks = ["gemm"]\nstates = ["crash"]\n'
        )
        (read,) = read_expectations(f"[[expectation]]\n{row}", "t")
        (fault,) = (row for row in broken() if row.name == "gfx1010-rocblas")
        assert (read.native_isa, read.effective_isa, read.rocm) == (("gfx1010",), ("gfx1010",), ">=5.3,<=6.0")
        assert (read.cause, read.reason, read.date) == (fault.cause, fault.title, fault.date)
        assert read.link == "https://github.com/ROCm/Tensile/issues/1757"

    def test_no_row_repeats_a_fault_of_a_stack(self) -> None:
        releases = [row["rocm"] for row in table("rocm_releases")["release"]]
        for row in expectations():
            for fault in broken():
                chips = [gfx for gfx in fault.gfx for isa in row.native_isa if fnmatchcase(gfx, isa)]
                known = list(SpecifierSet(row.rocm).filter(releases))
                shared = [rocm for rocm in known if within(rocm, fault.rocm_since, fault.rocm_until)]
                alike = row.cause == fault.cause and (fault.effective or "*") in row.effective_isa
                assert not (chips and shared and alike) or row.reason == fault.title, (row.id, fault.title)

    @pytest.mark.parametrize(
        ("isas", "rocm", "outcome", "state"),
        [
            (("gfx803", "gfx803"), "7.14", {"check": "gemm", "state": "wrong", "dtype": "float32"}, "xfail"),
            (("gfx803", "gfx803"), "7.14", {"check": "gemm", "state": "wrong"}, "wrong"),
            (("gfx803", "gfx803"), "6.3", {"check": "gemm", "state": "wrong", "dtype": "float32"}, "wrong"),
            (("gfx1010", "gfx1030"), "5.2", {"state": "crash", "dtype": "float32"}, "xfail"),
            (("gfx1010", "gfx1030"), "5.2", {"state": "wrong", "dtype": "float32"}, "wrong"),
        ],
    )
    def test_what_owners_of_old_cards_reported(self, isas, rocm, outcome, state) -> None:
        native, effective = isas
        failed = changed(native_isa=native, effective_isa=effective, failure=None, evidence=(), **outcome)
        machine = with_facts(torch_hip=rocm)
        assert Expectations(machine, None, expectations()).marked(failed).state == state

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ('"card-as-another"', '"Card As"', "row 1: id is missing"),
            ("states", "stats", "row 1 (card-as-another): stats is not a field of a row; the fields are id,"),
            ('date = "2024-05"\n', "", "date is missing; every row has"),
            ('native_isa = ["gfx101*"]\neffective_isa = ["gfx1030"]\n', "", "it names no chip"),
            ('["default", "find-*"]', '["defualt"]', "settings: 'defualt' is not a setting of a GPU"),
            ('["default", "find-*"]', '["cpu"]', "settings: 'cpu' is not a setting of a GPU"),
            ('["convolution"]', '["conv"]', "checks: no 'conv'; there are copy, "),
            ('["error", "hang"]', '["blocked"]', "states: no 'blocked'; there are wrong, "),
            ('["error", "hang"]', '"error"', "states is not a list of texts"),
            ('["error", "hang"]', "[]", "states is not a list of texts"),
            ('"miopen-solver-bug"', '"bad-luck"', "cause: no 'bad-luck'"),
            ('">=2.0,<2.2"', '"2.x"', "torch: '2.x' is not a version specifier"),
            ('"https://example.org/1"', '"a friend"', "link is not an https address"),
            ('"2024-05"', '"May 2024"', "date is not a year or year-month"),
            ('"it fails"', '"it fails\\nand fails"', "reason is not one line of text"),
            ('"it fails"', f'"{"so " * 60}"', "reason is longer than 140 characters"),
            ("[[expectation]]", "[expectation]", "a row begins with [[expectation]]"),
            ("[[expectation]]", "[[exception]]", "exception: a row begins with [[expectation]]"),
            ("[[expectation]]", "[[expectation", "not TOML"),
            (ROW, ROW + ROW, "row 2 (card-as-another): another row has this id"),
            (ROW, ROW + "sometimes = 1\n", "sometimes is not true or false"),
            (ROW, ROW + 'broken = "luck"\n', "broken: no 'luck'; there are rdna1-as-gfx1030, "),
        ],
    )  # fmt: skip
    def test_a_bad_row_is_one_clear_line(self, old: str, new: str, said: str) -> None:
        assert old in ROW
        with pytest.raises(BadInput) as refusal:
            read_expectations(ROW.replace(old, new), "my.toml")
        message = str(refusal.value)
        assert message.startswith("my.toml: ")
        assert said in message
        assert "\n" not in message


class TestResultsThatAreNoBaseline:
    FORMER = Results(
        SCHEMA_VERSION,
        "0",
        "2026-01-01T00:00:00Z",
        None,
        True,
        None,
        {},
        CARD,
        (),
        (),
        (),
        (told(FAILED), changed(id="b")),
    )

    def test_states_are_those_that_outcomes_came_to(self) -> None:
        assert baseline_of(self.FORMER, "r.json", CARD, None, ["cuda:0"]).states == {
            FAILED.id: "error",
            "b": "error",
        }

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"outcomes": ()}, "it has no outcomes"),
            (
                {"simulated": "conv-hang"},
                "it is from the simulated machine conv-hang, this run from a real machine",
            ),
            (
                {"machine": Machine()},
                "it is from a machine without a GPU, this run from Radeon of the tests (gfx1010)",
            ),
            (
                {"outcomes": (dataclasses.replace(FAILED, device="cpu"),)},
                "it tested cpu, this run tests cuda:0",
            ),
            ({"machine": dataclasses.replace(CARD, gpus=CARD.gpus * 2)}, "Radeon of the tests (gfx1010) and"),
        ],
    )
    def test_they_are_refused_in_one_line(self, changes: dict[str, object], said: str) -> None:
        former = dataclasses.replace(self.FORMER, **changes)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match=r"^--baseline: r\.json: .*; name ") as refusal:
            baseline_of(former, "r.json", CARD, None, ["cuda:0"])
        assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("rocm", "state"), [("5.2.0", "xfail"), ("6.4.3", "xfail"), ("7.2.4", "xfail"), ("7.3.0", "error")]
)
def test_batch_norm_on_rdna1_is_known_to_fail_up_to_the_last_release_that_was_tried(rocm, state) -> None:
    machine = Machine(CARD.gpus, {"rocm.version": Fact(rocm)})
    outcome = changed(
        id="cuda:0/default/batch-norm/fwd_bwd", check="batch-norm", rung="batch-norm",
        native_isa="gfx1010", effective_isa="gfx1010", problem=None, direction=None, dtype="float32",
    )  # fmt: skip
    assert Expectations(machine).marked(outcome).state == state


class TestCause:
    """A row is about one cause: a failure whose evidence names another cause is news."""

    BATCH_NORM = Outcome(
        "cuda:0/default/batch-norm/float32", "cuda:0", "default", "batch-norm", "batch-norm",
        "error", native_isa="gfx1010", effective_isa="gfx1010", dtype="float32", failure="miopen-status",
    )  # fmt: skip
    NO_OBJECT = "MIOpen Error: src/hipoc/hipoc_program.cpp:257: Cant find file: /tmp/m/MIOpenBatchNorm.cl.o"

    @pytest.mark.parametrize(
        ("line", "state"),
        [
            ("MIOpenBatchNormFwdTrainSpatial.cl:732:23: error: not a valid operand.", "xfail"),
            ("sh: 1: /build/miopen-6.4.3+dfsg/build/clang-21: not found", "error"),
        ],
    )
    def test_the_same_error_for_another_reason_is_no_known_failure(self, line: str, state: str) -> None:
        machine = Machine(CARD.gpus, {"rocm.version": Fact("6.4")})
        evidence = ("RuntimeError: miopenStatusUnknownError", line, self.NO_OBJECT)
        outcome = dataclasses.replace(self.BATCH_NORM, evidence=evidence)
        assert Expectations(machine).marked(outcome).state == state

    def test_a_memory_fault_may_have_any_cause(self) -> None:
        fault = "Memory access fault by GPU node-1 (Agent handle: 0x55) on address 0x7f. Reason: Unknown."
        row = ROW.replace('effective_isa = ["gfx1030"]\n', "").replace('"hang"]', '"crash"]')
        outcome = changed(state="crash", failure="SIGABRT", effective_isa="gfx1010", evidence=(fault,))
        assert told(outcome, row).state == "xfail"
