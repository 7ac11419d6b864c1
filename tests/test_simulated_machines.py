"""Every simulated machine, shipped and of the tests: the layer at fault, the cause, what is recommended,
whether that is verified there, and what else would have changed it."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mutations
import pytest
from runs import Run, all_machines, named_machine, run
from unnamed import unnamed_failures

from rocmprobe.knowledge.settings import title
from rocmprobe.model.results import Results
from rocmprobe.simulate.machines import load_machine

pytest.importorskip("torch")

FP32 = "conv2d-fp32-n1-c4-i8x8-k4-f3x3"
FP16 = FP32.replace("fp32", "fp16")
LARGE = FP32.replace("-n1-", "-n8-")
CONV3D = "conv3d-fp32-n1-c2-i4x5x5-k2-f3x3x3"
#: A line of MIOpen's log, and one that its interface prints for a failed call.
LOG = re.compile(
    r"(?:\d+ )?MIOpen\(HIP\)\s*[\d.]*: (Fatal|Error|Warning|Info|Info2|Trace|Command) \[[^\]]+\] .+"
)
ERROR = re.compile(r"MIOpen Error: (\S+:\d+: )?.+")
#: A compiler's line about one of its kernels.
COMPILER = re.compile(r"MIOpen\w+\.\w+:\d+:\d+: error: .+")


@dataclass(frozen=True)
class Expected:
    """One machine: what is asked, and what must come out. ``finding`` is the one that says what is wrong;
    ``found`` its (cause, layer)."""

    machine: str
    settings: str
    finding: str
    found: tuple[str, str]
    recommended: str | None
    problems: tuple[str, ...] = (FP32,)
    purpose: str = "inference"
    checks: tuple[str, ...] = ("convolution",)


NONE = ("", "")
TRAINING = ("*/convolution/*/fwd", "*/batch-norm/*", "*/training-step/*")
MACHINES = (
    Expected("healthy-gfx1100", "trust-verify,tuned", "", NONE, "default"),
    Expected("hot-weak-fan", "default,", "weak-fan", ("thermal-throttling", "hardware"), "default"),
    Expected("unstable-under-load", "default,", "", NONE, "default"),
    Expected(
        "rdna1-rocm52-conv-dead", "vendor-off", "native-convolution", ("miopen-no-solver", "miopen-find"),
        "vendor-off",
    ),
    Expected(
        "rdna1-fp16-broken", "no-winograd", "native-float16", ("fp16-broken", "miopen-exec"), "default",
        (FP32, FP16),
    ),
    Expected(
        "winograd-wrong", "no-faulty-solvers,no-winograd", "native-convolution",
        ("wrong-results-solver", "miopen-exec"), "no-faulty-solvers",
        checks=("convolution", "*/only-ConvBinWinograd*/solver/*", "*/only-GemmFwdRest/solver/*"),
    ),
    Expected(
        "bn-dead", "vendor-off,batch-norm-pytorch", "batch-norm",
        ("miopen-kernel-compile-failure", "miopen-compile"), "batch-norm-pytorch",
        purpose="training", checks=TRAINING,
    ),
    Expected(
        "compile-abort", "serial-compile", "native-convolution",
        ("miopen-kernel-compile-failure", "miopen-compile"), "serial-compile",
    ),
    Expected(
        "compile-abort-bn-dead", "serial-compile,vendor-off,serial-compile+batch-norm-pytorch", "batch-norm",
        ("miopen-kernel-compile-failure", "miopen-compile"), "serial-compile+batch-norm-pytorch",
        purpose="training", checks=TRAINING,
    ),
    Expected(
        "miopen-3.4.0-gfx1010", "vendor-off,batch-norm-pytorch+rnn-pytorch", "batch-norm",
        ("miopen-kernel-compile-failure", "miopen-compile"), "batch-norm-pytorch+rnn-pytorch",
        purpose="training", checks=(*TRAINING, "*/batch-norm-eval/*", "*/lstm/float32"),
    ),
    Expected(
        "miopen-3.5.1-gfx1010", "no-winograd,vendor-off,no-winograd+batch-norm-pytorch", "batch-norm",
        ("miopen-kernel-compile-failure", "miopen-compile"), "no-winograd+batch-norm-pytorch",
        purpose="training", checks=TRAINING,
    ),
    Expected(
        "igemm-compile-failure", "no-igemm", "native-convolution",
        ("miopen-kernel-compile-failure", "miopen-compile"), "no-igemm",
    ),
    Expected(
        "rocblas-files-missing", "naive-only", "rung-gemm", ("rocblas-missing-arch", "rocblas"), None,
        checks=("*/gemm/float32", "*/convolution/*"),
    ),
    Expected(
        "wheel-without-arch", "cpu", "rung-elementwise", ("arch-not-in-wheel", "torch-build"), "cpu",
        checks=("copy", "*/elementwise/float32", "convolution"),
    ),
    *(
        Expected(
            name, "vendor-off", "native-convolution", ("override-isa-mismatch", "miopen-exec"), "vendor-off"
        )
        for name in ("kernel-never-ends", "blocked-in-driver", "spin-wait")
    ),
    Expected("compiles-long", "default,", "", NONE, "default"),
    Expected(
        "search-for-minutes", "find-fast", "native-convolution", ("cold-compile-slow", "miopen-find"),
        "find-fast", (CONV3D,),
    ),
    Expected(
        "naive-fallback", "default,", "fallback-solver", ("slow-no-tuned-kernels", "miopen-find"), "default",
        (CONV3D,),
    ),
    Expected(
        "stale-cache", "no-cache,clean-db", "native-convolution", ("miopen-db-unusable", "miopen-exec"),
        "clean-db",
    ),
    Expected("db-read-only", "as-found", "as-found", ("miopen-db-unusable", "miopen-find"), "default"),
    Expected(
        "search-enforced", "as-found", "forced-search", ("cold-compile-slow", "miopen-find"), "default",
        purpose="training", checks=("*/convolution/*",),
    ),
    Expected("env-rejected", "as-found", "as-found", ("miopen-env-misparse", "user-env"), "default"),
    Expected(
        "gemm-memory-fault", "naive-only", "native-convolution", ("miopen-solver-bug", "miopen-exec"),
        "naive-only", purpose="training", checks=("*/convolution/*/bwd-data",),
    ),
    Expected(
        "attention-backend-missing", "default,", "attention-backend-missing",
        ("attention-backend-missing", "torch-build"), "default",
        checks=("convolution", "attention", "attention-flash"),
    ),
    Expected(
        "hipblaslt-no-kernels", "no-hipblaslt", "matmul", ("hipblaslt-missing-arch", "rocblas"), "default",
        checks=("convolution", "matmul", "int-matmul"),
    ),
    Expected(
        "triton-writes-nothing", "triton-no-buffer-ops", "triton", ("triton-writes-nothing", "triton"),
        "default", checks=("convolution", "triton"),
    ),
    Expected(
        "inductor-wrong", "triton-no-buffer-ops", "inductor", ("compiled-code-wrong", "triton"), "default",
        checks=("convolution", "triton", "inductor"),
    ),
    Expected(
        "every-size-minutes", "find-fast,immediate,vendor-off", "changing-sizes",
        ("cold-compile-slow", "miopen-find"), "default", checks=("convolution", "changing-sizes"),
    ),
    Expected(
        "oom-at-batch", "vendor-off", "native-convolution", ("vram-oom", "oom"), "vendor-off", (FP32, LARGE)
    ),
)  # fmt: skip


def _run(expected: Expected, folder: Path) -> Run:
    checks = [argument for check in expected.checks for argument in ("--only", check)]
    problems = [argument for text in expected.problems for argument in ("--problem", text)]
    return run(
        folder / expected.machine, "--simulate", named_machine(expected.machine),
        "--settings", expected.settings, "--purpose", expected.purpose, *checks, *problems,
    )  # fmt: skip


#: One of each kind: nothing fails, everything does, wrong numbers, a crash, too little memory.
QUICK = {
    "healthy-gfx1100", "rdna1-rocm52-conv-dead", "winograd-wrong", "compile-abort", "oom-at-batch",
}  # fmt: skip
Made = Callable[[str], Run]


def tier(machine: str) -> list[pytest.MarkDecorator]:
    return [] if machine in QUICK else [pytest.mark.thorough]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The run on a machine, made once."""
    folder = tmp_path_factory.mktemp("machines")
    table = {expected.machine: expected for expected in MACHINES}
    return functools.lru_cache(maxsize=None)(lambda machine: _run(table[machine], folder))


def test_every_machine_is_in_the_table() -> None:
    # A run on conv-hang lasts minutes, and kernel-never-ends is the same machine with short limits.
    tested = {Path(name).stem for name in all_machines()} - {"conv-hang"}
    assert {expected.machine for expected in MACHINES} == tested
    shipped, short = load_machine("conv-hang"), load_machine(named_machine("kernel-never-ends"))
    assert not shipped.budgets
    assert [fault.effect for fault in shipped.faults] == [fault.effect for fault in short.faults]
    facts = [{name: fact.value for name, fact in each.machine.facts.items()} for each in (shipped, short)]
    assert facts[0] == facts[1]


@pytest.mark.parametrize(
    "expected", [pytest.param(each, marks=tier(each.machine), id=each.machine) for each in MACHINES]
)
class TestVerdicts:
    def results(self, expected: Expected, runs: Made) -> Results:
        made = runs(expected.machine)
        assert made.ended.returncode in (0, 1), made.ended.stdout + made.ended.stderr
        return made.results

    def test_the_layer_at_fault_the_cause_and_the_setting(self, expected: Expected, runs: Made) -> None:
        results = self.results(expected, runs)
        found = {each.id: (each.cause, each.layer) for each in results.findings}
        assert all(each.remedy for each in results.findings if each.severity == "error")
        assert unnamed_failures(results) == []
        if expected.finding:
            assert found[expected.finding] == expected.found
        else:
            assert found == {}
        assert results.recommendation is not None
        assert results.recommendation.configuration.setting == expected.recommended
        assert not results.partial
        assert not [outcome.id for outcome in results.outcomes if outcome.state == "probe-error"]

    def test_it_changes_when_and_only_when_it_should(self, expected: Expected, runs: Made) -> None:
        results = self.results(expected, runs)
        assert sum(check(results) for check in mutations.CHECKS) > len(results.outcomes)


#: One machine for each setting that is recommended, of those that are quick if there is one.
BY_SETTING = {
    each.recommended: each
    for each in sorted(MACHINES, key=lambda each: each.machine in QUICK)
    if each.recommended
}


@pytest.mark.parametrize(
    "expected",
    [pytest.param(each, marks=tier(each.machine), id=each.recommended) for each in BY_SETTING.values()],
)
def test_the_recommendation_is_verified_on_the_same_machine(
    expected: Expected, runs: Made, tmp_path: Path
) -> None:
    recommendation = runs(expected.machine).results.recommendation
    assert recommendation is not None
    program, command, *arguments = shlex.split(recommendation.verify)
    assert (program, command) == ("rocmprobe", "run")
    made = run(tmp_path / "verified", *arguments)
    assert made.ended.returncode == 0, made.ended.stdout + made.ended.stderr
    assert f"{expected.recommended} still works: " in made.ended.stdout
    library = [outcome for outcome in made.results.outcomes if outcome.rung in ("conv", "train")]
    native = {each.name for each in made.results.settings if each.verdict.startswith("native")}
    if expected.recommended not in native:
        assert {outcome.setting for outcome in library} == {expected.recommended}


def test_a_setting_that_the_version_does_not_know_is_not_applicable(runs: Made) -> None:
    outcome = runs("healthy-gfx1100").of("trust-verify")
    assert outcome.state == "n/a"
    assert outcome.evidence[0] == "MIOpen 3.3.0 does not know this; 3.5.1 is the first that does"
    assert runs("healthy-gfx1100").of("tuned").state == "pass"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("machine", "verdict", "env", "install", "layers"),
    [
        (
            "miopen-3.4.0-gfx1010", "native", {},
            'rocmprobe.bypass.install(convolution="native", batch_norm="pytorch", rnn="pytorch")',
            (
                "convolution: MIOpen unchanged, correct",
                "batch norm: PyTorch's own kernels, correct",
                "batch norm in evaluation: PyTorch's own kernels, correct",
                "LSTM: PyTorch's own kernels, correct",
            ),
        ),
        (
            "miopen-3.5.1-gfx1010", "native-with-settings", {"MIOPEN_DEBUG_CONV_WINOGRAD": "0"},
            'rocmprobe.bypass.install(convolution="native", batch_norm="pytorch")',
            (
                "convolution: MIOpen with MIOPEN_DEBUG_CONV_WINOGRAD=0, correct",
                "batch norm: PyTorch's own kernels, correct",
            ),
        ),
    ],
)  # fmt: skip
def test_each_kind_of_layer_gets_what_holds_for_it(
    runs: Made, machine: str, verdict: str, env: dict[str, str], install: str,
    layers: tuple[str, ...],
) -> None:  # fmt: skip
    recommendation = runs(machine).results.recommendation
    assert recommendation is not None
    configuration = recommendation.configuration
    assert (recommendation.verdict, dict(configuration.env)) == (verdict, env)
    assert configuration.code.splitlines() == ["import rocmprobe.bypass", install]
    assert configuration.layers == layers
    assert (
        "with PyTorch's own kernels: all float32 problems tested give correct results."
        in recommendation.sentence
    )


@pytest.mark.thorough
def test_fp16_alone_gets_an_answer_of_its_own(runs: Made) -> None:
    recommendation = runs("rdna1-fp16-broken").results.recommendation
    assert recommendation is not None
    assert recommendation.per["float16/inference"]["setting"] == "no-winograd"


@pytest.mark.thorough
def test_sizes_that_change_get_an_answer_of_their_own(runs: Made) -> None:
    made = runs("every-size-minutes")
    timings = made.outcomes["cuda:0/default/changing-sizes/float32"].timings
    # Two convolutions are searched for, for 40 s each; nobody waits for it.
    assert timings["new_size"] > 80 > 1 > timings["known_size"]
    recommendation = made.results.recommendation
    assert recommendation is not None
    assert recommendation.per["float32/inference"]["setting"] == "default"
    answer = recommendation.per["float32/changing-sizes"]
    assert answer["setting"] in ("find-fast", "immediate", "vendor-off")
    assert answer["new_size_seconds"] < 1
    assert f"keep changing, use the setting “{title(answer['setting'])}”" in recommendation.sentence


def test_a_larger_batch_runs_out_of_memory_and_a_smaller_one_does_not(runs: Made) -> None:
    made = runs("oom-at-batch")
    assert made.of("default", FP32).state == "pass"
    assert (made.of("default", LARGE).state, made.of("default", LARGE).failure) == ("error", "out-of-memory")


@pytest.mark.thorough
def test_a_naive_kernel_is_slow_and_not_pass(runs: Made) -> None:
    outcome = runs("naive-fallback").of("default", CONV3D)
    assert (outcome.state, outcome.solver) == ("slow", "ConvDirectNaiveConvFwd")


def test_miopen_s_lines_have_the_grammar_of_the_real_library() -> None:
    lines = [
        (name, line)
        for name in all_machines()
        for fault in load_machine(name).faults
        for text in fault.stderr.values()
        for line in text.splitlines()
        if "MIOpen" in line and "what():" not in line and "terminate" not in line
    ]
    assert lines
    assert [
        each for each in lines if not any(form.fullmatch(each[1]) for form in (LOG, ERROR, COMPILER))
    ] == []
