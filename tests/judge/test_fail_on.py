"""The exit code of a run by what it found and by the policy of ``--fail-on``."""

from __future__ import annotations

from rows import every_row
from synthetic import STATUS, run

from rocmprobe.cli.run import _exit_code
from rocmprobe.judge.changes import regressions
from rocmprobe.judge.judgement import judge
from rocmprobe.model.baseline import Baseline, states
from rocmprobe.model.exit_codes import FINDINGS, OK, WEDGED
from rocmprobe.model.results import Results

#: The card that works owes it to an override, which is a finding: a processor has none.
WORKS, BROKEN = judge(run(backend="onednn")), run({"default/convolution/*": STATUS})
KNOWN = Baseline("old.json", "2026-01-01T00:00:00Z", "0", states(BROKEN.outcomes))
GOOD = Baseline("old.json", "2026-01-01T00:00:00Z", "0", states(run().outcomes))


@every_row(
    ("results", "findings", "regressions"),
    [
        (WORKS, OK, OK),
        (judge(BROKEN), FINDINGS, FINDINGS),
        (judge(BROKEN, KNOWN), FINDINGS, OK),
        (judge(BROKEN, GOOD), FINDINGS, FINDINGS),
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
