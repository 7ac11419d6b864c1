"""The solver sweep on simulated machines: which solver is faulty, and that what switches it off holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from runs import PROBLEM, Background, Run, cli, journal, machine_file, named_machine, resume, run

from rocmprobe.judge.findings.sweep import of_sweep, solver_class
from rocmprobe.knowledge.solvers import solver_of
from rocmprobe.model.results import Outcome

pytest.importorskip("torch")

GEMM, NAIVE, OCL = "GemmFwdRest", "ConvDirectNaiveConvFwd", "ConvOclDirectFwd"
WINOGRAD, CK = "ConvBinWinogradRxSf3x2", "ConvCkIgemmFwdV6r1DlopsNchw"
OFF = {
    OCL: "MIOPEN_DEBUG_CONV_DIRECT_OCL_FWD",
    WINOGRAD: "MIOPEN_DEBUG_AMD_WINOGRAD_RXS_F3X2",
    CK: "MIOPEN_DEBUG_CONV_CK_IGEMM_FWD_V6R1_DLOPS_NCHW",
    GEMM: "MIOPEN_DEBUG_CONV_GEMM",
}
WRONG = {"library": "miopen", "effect": "wrong", "solver": [WINOGRAD]}
CRASH = {"library": "miopen", "effect": "signal", "signal": "SIGABRT", "solver": [OCL]}
HANG = {"library": "miopen", "effect": "hang", "solver": [OCL]}
STATUS = {"library": "miopen", "effect": "raise", "message": "miopenStatusUnknownError"}
#: Nothing hangs by itself, however busy the machine that runs the tests is.
PATIENT = {"server": 120, "start": 120, "teardown": 60}


def offering(path: Path, offered: tuple[str, ...], *faults: Mapping[str, Any], **budgets: float) -> Path:
    """A machine of the tests whose MIOpen has these solvers."""
    machine_file(path, *faults, **{**PATIENT, **budgets})
    path.write_text(f"solvers = {json.dumps(offered)}\n{path.read_text('utf-8')}", "utf-8")
    return path


def asking(*solvers: str, settings: str = "no-faulty-solvers,") -> list[str]:
    """One direction of one problem, under ``default`` and ``settings``, and of these solvers alone."""
    sweep = [argument for name in solvers for argument in ("--only", f"*/only-{name}/solver/*")]
    return [
        "--only", "convolution", *sweep, "--settings", settings, "--problem", PROBLEM,
        "--purpose", "inference",
    ]  # fmt: skip


@dataclass(frozen=True)
class Expected:
    """What the solvers come to, the switches found, and the state of the setting that has them."""

    classes: Mapping[str, str]
    off: tuple[str, ...]
    cured: str = "pass"


MACHINES: dict[str, tuple[tuple[Mapping[str, Any], ...], Expected]] = {
    "two families": (
        (WRONG, CRASH),
        Expected({GEMM: "ok", NAIVE: "ok", OCL: "crash", WINOGRAD: "wrong"}, (OCL, WINOGRAD)),
    ),
    "hang": ((HANG,), Expected({GEMM: "ok", OCL: "hang"}, (OCL,))),
    "in vain": (
        (
            {**STATUS, "settings": ["default"]},
            {
                **STATUS, "settings": [f"only-{OCL}"],
                "stderr": {"any": "MIOpen Error: src/find_controls.cpp:143: Invalid value of "
                                  f"MIOPEN_DEBUG_FIND_ONLY_SOLVER: {OCL}"},
            },
            {
                "library": "miopen", "effect": "print", "settings": [f"only-{GEMM}"],
                "stderr": {"any": "MIOpen(HIP): Info [FindConvFwdAlgorithm] FW Chosen Algorithm: fft , 0, 1"},
            },
        ),
        Expected(dict.fromkeys((GEMM, OCL, "fft"), "does not apply"), (), "skipped"),
    ),
}  # fmt: skip


def _run(folder: Path, name: str) -> Run:
    faults, expected = MACHINES[name]
    offered = tuple(solver for solver in expected.classes if solver != "fft")
    path = folder / f"{name.replace(' ', '-')}.toml"
    budgets = {"first_call": 3, "steady": 3} if name == "hang" else {"first_call": 120, "steady": 120}
    machine = offering(path, offered, *faults, **budgets)
    return run(path.with_suffix(""), "--simulate", machine, *asking(*expected.classes))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Run]:
    """Each of them when it is first asked for."""
    folder = tmp_path_factory.mktemp("sweeps")

    class Runs(dict[str, Run]):
        def __missing__(self, name: str) -> Run:
            self[name] = _run(folder, name)
            return self[name]

    return Runs()


@pytest.mark.parametrize(
    "name",
    [
        "two families",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in MACHINES if name != "two families"),
    ],
)
class TestSweep:
    def test_every_solver_has_its_class(self, runs: Mapping[str, Run], name: str) -> None:
        made = runs[name]
        assert made.ended.returncode in (0, 1), made.ended.stdout + made.ended.stderr
        assert classes(made) == MACHINES[name][1].classes

    def test_the_switches_that_were_found_hold(self, runs: Mapping[str, Run], name: str) -> None:
        expected = MACHINES[name][1]
        derived = next(each for each in runs[name].results.settings if each.derived)
        assert derived.env == {OFF[solver]: "0" for solver in expected.off}
        assert runs[name].of("no-faulty-solvers").state == expected.cured

    def test_they_are_recommended_where_they_hold(self, runs: Mapping[str, Run], name: str) -> None:
        found = runs[name].results.recommendation
        assert found is not None
        expected = MACHINES[name][1]
        wanted = "no-faulty-solvers" if expected.cured == "pass" else None
        assert found.configuration.setting == wanted
        if wanted:
            assert found.configuration.env == {OFF[solver]: "0" for solver in expected.off}
            assert all(f"{OFF[solver]}=0" in found.sentence for solver in expected.off)


def classes(made: Run) -> dict[str, str]:
    return {str(solver_of(outcome)): solver_class(outcome) for outcome in of_sweep(made.results)}


def of_solver(made: Run, name: str) -> Outcome:
    return next(outcome for outcome in of_sweep(made.results) if solver_of(outcome) == name)


@pytest.mark.thorough
def test_each_solver_has_a_process_and_folders_of_its_own(runs: Mapping[str, Run]) -> None:
    trials = [trial for trial in runs["two families"].results.trials if trial.setting.startswith("only-")]
    assert {trial.setting for trial in trials} == {f"only-{name}" for name in (GEMM, NAIVE, OCL, WINOGRAD)}


@pytest.mark.thorough
def test_a_naive_kernel_that_was_forced_is_right_and_not_slow(runs: Mapping[str, Run]) -> None:
    outcome = of_solver(runs["two families"], NAIVE)
    assert (outcome.state, outcome.solver) == ("pass", NAIVE)


@pytest.mark.thorough
def test_the_first_hang_is_proven_by_a_second_and_the_sweep_ends_after_a_few(tmp_path: Path) -> None:
    solvers = (GEMM, OCL, "fft")
    hang = {"library": "miopen", "effect": "hang", "settings": [f"only-{name}" for name in solvers]}
    faults = ({**STATUS, "settings": ["default"]}, hang)
    # Three times as many in the sweep as under one setting: two.
    machine = offering(tmp_path / "m.toml", solvers, *faults, first_call=3, hangs=0.5)
    made = run(tmp_path / "out", "--simulate", machine, *asking(*solvers))
    assert classes(made) == {GEMM: "hang", OCL: "hang", "fft": "blocked"}
    assert [len(of_solver(made, name).attempts) for name in solvers] == [2, 1, 0]
    assert of_solver(made, "fft").failure == "many-hangs"
    assert made.of("no-faulty-solvers").state == "n/a"


@pytest.mark.thorough
def test_why_a_solver_tells_nothing(runs: Mapping[str, Run]) -> None:
    reasons = {str(solver_of(each)): each.evidence[0] for each in of_sweep(runs["in vain"].results)}
    assert reasons == {
        GEMM: "MIOpen ran fft in its place",
        OCL: f"this MIOpen does not know {OCL}",
        "fft": "fft does not apply to this problem",
    }


def test_page_and_terminal_show_them(runs: Mapping[str, Run]) -> None:
    made = runs["two families"]
    page = (made.folder / "report.html").read_text("utf-8")
    section = page.partition('id="h-solvers"')[2].partition("</section>")[0]
    assert section.count("<tr>") == 1 + 4
    assert "computes wrong numbers" in section
    assert "2 of MIOpen's 4 applicable solvers fail" in made.ended.stdout.replace("\n", " ")


@pytest.mark.thorough
def test_the_variables_are_printed_for_a_shell(runs: Mapping[str, Run]) -> None:
    told = cli("env", "--simulated", runs["two families"].folder / "results.json")
    assert set(told.stdout.splitlines()) == {f"export {OFF[name]}=0" for name in (OCL, WINOGRAD)}


@pytest.mark.thorough
def test_verify_asks_with_the_variables_of_the_results(runs: Mapping[str, Run], tmp_path: Path) -> None:
    results = runs["two families"].folder / "results.json"
    narrow = ("--", "-k", "/convolution/")
    again = run(tmp_path / "same", "--verify", results, *narrow)
    assert again.ended.returncode == 0, again.ended.stdout + again.ended.stderr
    assert "no-faulty-solvers still works" in again.ended.stdout
    assert of_sweep(again.results) == ()
    assert next(each for each in again.results.settings if each.derived).env == {
        OFF[OCL]: "0", OFF[WINOGRAD]: "0",
    }  # fmt: skip
    twice = run(tmp_path / "twice", "--verify", again.folder / "results.json", *narrow).ended
    assert twice.returncode == 0, twice.stdout + twice.stderr


@pytest.mark.thorough
def test_verify_takes_no_other_variables_from_results(runs: Mapping[str, Run], tmp_path: Path) -> None:
    data = json.loads((runs["two families"].folder / "results.json").read_text("utf-8"))
    derived = next(setting for setting in data["settings"] if setting["derived"])
    derived["env"] = {"LD_PRELOAD": "/tmp/x.so"}
    (tmp_path / "results.json").write_text(json.dumps(data), "utf-8")
    refused = cli("run", "--verify", tmp_path / "results.json", "--out", tmp_path / "out")
    assert refused.returncode == 2
    assert "is not a set of solver switches" in refused.stderr


@pytest.mark.thorough
def test_a_kernel_that_does_not_compile(tmp_path: Path) -> None:
    made = run(tmp_path / "out", "--simulate", named_machine("igemm-compile-failure"), *asking(CK, GEMM))
    assert classes(made) == {CK: "compile error", GEMM: "ok"}
    found = made.results.recommendation
    assert found is not None
    assert found.configuration.env == {OFF[CK]: "0"}
    assert any(f"{CK} does not compile" in each.title for each in made.results.findings)


class TestHealthy:
    def test_nothing_is_asked_where_default_is_right(self, tmp_path: Path) -> None:
        machine = machine_file(tmp_path / "machine.toml", **PATIENT)
        arguments = ("-v", "--only", "solver", *asking())
        made = run(tmp_path / "out", "--simulate", machine, *arguments)
        assert made.ended.returncode == 0, made.ended.stdout + made.ended.stderr
        swept = of_sweep(made.results)
        assert len(swept) > 5
        assert {outcome.state for outcome in swept} == {"skipped"}
        assert {outcome.evidence[0] for outcome in swept} == {
            "the default gives correct results here, so no other setting is needed"
        }
        told = [line for line in made.ended.stdout.splitlines() if line.startswith("[skipped]")]
        assert any(
            f"{len(swept)} cases of solver  the default gives correct results here" in line for line in told
        )
        assert len(told) <= 2
        cured = made.of("no-faulty-solvers")
        assert (cured.state, cured.evidence[0]) == (
            "skipped", "the default is correct: no solver needs to be switched off",
        )  # fmt: skip
        assert {trial.setting for trial in made.results.trials} == {"default"}
        assert made.of("default").solver == WINOGRAD
        page = (made.folder / "report.html").read_text("utf-8")
        assert "No solver was run alone" in page

    def test_all_settings_ask_all_the_same(self, tmp_path: Path) -> None:
        machine = machine_file(tmp_path / "machine.toml", **PATIENT)
        arguments = ("--skip", "*/convolution/*", *asking(GEMM, NAIVE, settings="all"))
        made = run(tmp_path / "out", "--simulate", machine, *arguments)
        assert classes(made) == {GEMM: "ok", NAIVE: "ok"}
        assert (
            "Solvers alone: MIOpen's 2 applicable solvers all give correct results alone" in made.ended.stdout
        )


@pytest.mark.thorough
def test_a_run_that_is_killed_in_the_sweep_is_taken_up_again(tmp_path: Path) -> None:
    machine = offering(tmp_path / "machine.toml", (GEMM, NAIVE, WINOGRAD), WRONG, first_call=120, steady=120)
    folder = tmp_path / "out"
    victim = Background(folder, "--simulate", machine, *asking(GEMM, NAIVE, WINOGRAD))

    def in_the_sweep() -> bool:
        return any(
            record["record"] == "outcome" and record["outcome"]["check"] == "solver"
            for record in journal(folder)
        )

    assert victim.reaches(in_the_sweep)
    victim.kill()
    resumed = resume(folder, "--retry-aborted")
    assert resumed.ended.returncode == 1, resumed.ended.stdout + resumed.ended.stderr
    assert not resumed.results.partial
    assert classes(resumed) == {GEMM: "ok", NAIVE: "ok", WINOGRAD: "wrong"}
    assert resumed.of("no-faulty-solvers").state == "pass"
    found = resumed.results.recommendation
    assert found is not None
    assert found.configuration.env == {OFF[WINOGRAD]: "0"}


@pytest.mark.thorough
def test_a_family_that_is_left_without_a_solver_is_an_error_that_is_explained(tmp_path: Path) -> None:
    machine = offering(tmp_path / "machine.toml", (GEMM, NAIVE))
    done = run(
        tmp_path / "out", "--simulate", machine, "--only", "*/convolution/*", "--settings",
        "default,winograd-only,gemm-only", "--problem", PROBLEM, "--purpose", "inference",
    )  # fmt: skip
    assert done.of("default").state == done.of("gemm-only").state == "pass"
    failed = done.of("winograd-only")
    assert (failed.state, failed.failure) == ("n/a", "no-solver")
    assert failed.evidence[0] == "no solver that this setting allows applies to this problem"
    assert done.results.findings == ()
    assert done.results.recommendation is not None
    assert done.results.recommendation.configuration.setting == "default"
    assert done.ended.returncode == 0


@pytest.mark.thorough
def test_an_error_under_every_setting_is_not_blamed_on_a_choice_of_solvers(tmp_path: Path) -> None:
    words = "MIOpen Error: x.cpp:518: Forward Convolution cannot be executed due to incorrect params"
    machine = offering(tmp_path / "machine.toml", (GEMM, NAIVE), {**STATUS, "stderr": {"any": words}})
    done = run(
        tmp_path / "out", "--simulate", machine, "--only", "*/convolution/*", "--settings",
        "default,gemm-only,naive-only,vendor-off", "--problem", PROBLEM, "--purpose", "inference",
    )  # fmt: skip
    failed = done.of("default")
    assert (failed.state, failed.failure) == ("error", "miopen-status")
    assert failed.evidence[0] == "RuntimeError: miopenStatusUnknownError"
    for setting in ("gemm-only", "naive-only"):
        assert (done.of(setting).state, done.of(setting).failure) == ("n/a", "no-solver")
    (finding,) = (each for each in done.results.findings if each.id == "native-convolution")
    assert "(1 of 1 settings)" in finding.title
