"""Changes since a former run, the effect of expectations, and the exit code under `--fail-on`."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import FP16, FP32, STATUS, diagnose, recommend, run

from rocmprobe.cli.run import _exit_code
from rocmprobe.judge.changes import changes, regressions, worse
from rocmprobe.judge.judgement import judge
from rocmprobe.knowledge.expectations import observed
from rocmprobe.model.baseline import Baseline, states
from rocmprobe.model.changes import KINDS
from rocmprobe.model.exit_codes import FINDINGS, OK, WEDGED
from rocmprobe.model.results import Fact, Results
from rocmprobe.model.states import STATES

BROKEN = {"default/convolution/*": STATUS, "as-found/convolution/*": STATUS}
#: A machine of which the table knows that convolution may crash on it.
KNOWN_CRASH = {"default/convolution/*": {"state": "crash", "failure": "SIGSEGV", "evidence": ("SIGSEGV",)}}


def baseline(results: Results) -> Baseline:
    return Baseline("old.json", results.started, results.rocmprobe, states(results.outcomes))


def later_rocm(results: Results) -> Results:
    facts = {**results.machine.facts, "torch.hip": Fact("5.4.22803-474e8620", "wheel")}
    return dataclasses.replace(results, machine=dataclasses.replace(results.machine, facts=facts))


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("pass", "wrong", "regression"), ("slow", "crash", "regression"), ("pass", "flaky", "regression"),
        ("error", "pass", "mended"), ("hang", "slow", "mended"), ("flaky", "pass", "changed"),
        ("error", "crash", "changed"), ("pass", "slow", "changed"), ("blocked", "error", "changed"),
        ("skipped", "n/a", "changed"), ("pass", "blocked", "lost"), ("error", "probe-error", "lost"),
        (None, "error", "new"), ("error", None, "missing"), ("pass", "pass", None), ("error", "error", None),
    ],
)  # fmt: skip
def test_kinds_of_change(before: str | None, after: str | None, kind: str | None) -> None:
    found = changes({"q": before} if before else {}, {"q": after} if after else {})
    assert [(each.id, each.before, each.after, each.kind) for each in found] == (
        [("q", before, after, kind)] if kind else []
    )


RUNS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(list(STATES)))


@given(RUNS, RUNS)
def test_every_question_that_differs_is_named_once_and_no_other(
    before: dict[str, str], after: dict[str, str]
) -> None:
    found = changes(before, after)
    assert {each.id for each in found} == {
        name for name in {*before, *after} if before.get(name) != after.get(name)
    }
    assert len({each.id for each in found}) == len(found)
    assert [KINDS.index(each.kind) for each in found] == sorted(KINDS.index(each.kind) for each in found)
    assert changes(after, after) == ()


def test_a_known_failure_is_judged_as_the_failure_that_it_is() -> None:
    came = later_rocm(run(KNOWN_CRASH))
    found = judge(came)
    marked = [each for each in found.outcomes if each.state == "xfail"]
    assert len(marked) == 6
    assert tuple(map(observed, found.outcomes)) == came.outcomes
    assert found.recommendation == recommend(came)
    assert found.recommendation is not None
    assert found.recommendation.verdict != "native"
    known = [each for each in found.findings if each.id == "known-failure-0"]
    bare = {dataclasses.replace(each, confirm="", remedy="") for each in found.findings if each not in known}
    assert bare == set(diagnose(came))
    assert [(each.severity, each.cause, each.layer) for each in known] == [
        ("info", "override-isa-mismatch", "user-env")
    ]
    assert "https://github.com/ROCm/ROCm/issues/2527" in known[0].evidence
    assert judge(found) == found
    assert regressions(found) == ()


def test_without_a_baseline_every_unknown_failure_is_a_regression() -> None:
    assert {each.state for each in regressions(judge(run(BROKEN)))} == {"error"}
    assert regressions(judge(run())) == ()


def test_the_same_run_again_is_no_change() -> None:
    former = judge(run(BROKEN))
    again = judge(run(BROKEN), baseline(former))
    assert again.changes is not None
    assert again.changes.changed == ()
    assert again.changes.compared == len(former.outcomes)
    assert regressions(again) == ()
    assert {each.state for each in again.outcomes} <= {"xfail", "pass", "n/a", "skipped"}
    assert again.recommendation == former.recommendation
    assert again.findings == former.findings


def test_failures_and_passes_since_the_baseline_are_told_apart() -> None:
    former = judge(run({f"default/convolution/{FP16}/*": STATUS}))
    now = judge(run({f"default/convolution/{FP32}/fwd": "wrong"}), baseline(former))
    (worse,) = regressions(now)
    assert (worse.problem, worse.direction, worse.state) == (FP32, "fwd", "wrong")
    better = [each for each in now.outcomes if each.state == "xpass"]
    assert {each.problem for each in better} == {FP16}
    found = {each.id: each for each in now.findings}
    assert found["regressions"].severity == "error"
    assert found["unexpected-passes"].severity == "info"
    assert judge(now) == now


def test_new_and_missing_cases_are_no_regression() -> None:
    former = judge(run())
    fewer = dataclasses.replace(run(BROKEN), outcomes=run(BROKEN).outcomes[3:])
    now = judge(fewer, baseline(former))
    assert now.changes is not None
    assert [each.id for each in now.changes.of("missing")] == sorted(each.id for each in former.outcomes[:3])
    back = judge(run(BROKEN), baseline(judge(fewer)))
    assert back.changes is not None
    assert [each.kind for each in back.changes.changed] == ["new"] * 3
    assert regressions(back) == ()


def test_a_job_that_compares_nothing_does_not_pass() -> None:
    nothing = judge(run(), Baseline("old.json", "2026-01-01T00:00:00Z", "0", {"cpu/default/copy": "pass"}))
    assert regressions(nothing) == ()
    assert worse(nothing)
    assert "strange-baseline" in {each.id for each in nothing.findings}
    assert not worse(judge(run(), baseline(run())))


def test_a_job_that_compares_little_does_not_pass_unless_told_to() -> None:
    former = run()
    few = dataclasses.replace(former, outcomes=former.outcomes[: len(former.outcomes) // 3])
    now = judge(few, baseline(former))
    assert regressions(now) == ()
    assert worse(now)
    (finding,) = [each for each in now.findings if each.id == "strange-baseline"]
    assert finding.title.startswith(
        f"{len(former.outcomes) - len(few.outcomes)} of the {len(former.outcomes)}"
    )
    told = dataclasses.replace(few, options={**few.options, "only": ["copy"]})
    assert not worse(judge(told, baseline(former)))
    most = dataclasses.replace(former, outcomes=former.outcomes[: len(former.outcomes) * 2 // 3])
    assert not worse(judge(most, baseline(former)))


def test_a_job_whose_questions_rocmprobe_broke_on_does_not_pass() -> None:
    broke = run({"default/convolution/*": "probe-error"})
    assert worse(judge(broke))
    assert worse(judge(broke, baseline(run())))
    # Skipped is what versions differ in; what worked and is blocked is lost.
    assert not worse(judge(run({"default/convolution/*": "skipped"}), baseline(run())))
    blocked = run({"default/convolution/*": "blocked"})
    assert worse(judge(blocked, baseline(run())))
    assert not worse(judge(blocked, baseline(run(BROKEN))))
    # It breaks every night, and says so in its findings.
    assert not worse(judge(broke, baseline(broke)))


#: The card that works owes it to an override, which is a finding: a processor has none.
WORKS, FAILING = judge(run(backend="onednn")), run({"default/convolution/*": STATUS})
KNOWN = Baseline("old.json", "2026-01-01T00:00:00Z", "0", states(FAILING.outcomes))
GOOD = Baseline("old.json", "2026-01-01T00:00:00Z", "0", states(run().outcomes))


@pytest.mark.parametrize(
    ("results", "findings", "regressions"),
    [
        (WORKS, OK, OK),
        (judge(FAILING), FINDINGS, FINDINGS),
        (judge(FAILING, KNOWN), FINDINGS, OK),
        (judge(FAILING, GOOD), FINDINGS, FINDINGS),
        (judge(run({"*/convolution/*": {"state": "blocked", "failure": "gpu-wedged"}})), WEDGED, WEDGED),
    ],
)
def test_exit_codes_of_each_policy(results: Results, findings: int, regressions: int) -> None:
    assert _exit_code(results, "findings") == findings
    assert _exit_code(results, "regressions") == regressions
    assert _exit_code(results, "never") == (WEDGED if findings == WEDGED else OK)


def test_a_failed_cure_of_a_known_failure_is_no_regression() -> None:
    tried = {"default/convolution/*": "xfail", "no-winograd/convolution/*": "error"}
    results = run(tried)
    assert next(each for each in results.settings if each.name == "no-winograd").cures
    assert not regressions(results)
    assert regressions(run({**tried, "default/convolution/*": "pass"}))
    assert regressions(run({**tried, "default/softmax/*": "error"}))
