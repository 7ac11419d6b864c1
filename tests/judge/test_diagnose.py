"""Findings: what is told, how gravely, and which layer it blames."""

from __future__ import annotations

import dataclasses

from rows import every_row
from sample_logs import DAMAGED
from synthetic import (
    FP16,
    FP32,
    KINDS,
    STATUS,
    TORCH,
    blocked_by_convolution,
    card,
    diagnose,
    natively,
    recommend,
    run,
)

from rocmprobe.judge.blame import blamed, signature
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.diagnose import act_on
from rocmprobe.judge.judgement import judge
from rocmprobe.knowledge.causes import causes, layers
from rocmprobe.knowledge.settings import with_cures
from rocmprobe.model.results import Fact, Gpu, Machine, Results, Trial
from rocmprobe.report import ladder

DEAD = {**natively(STATUS), **blocked_by_convolution()}
LIBRARIES = ("miopen", "cudnn", "onednn")
CRASH = {"state": "crash", "failure": "SIGSEGV"}
FAULT = {"state": "crash", "evidence": ("Memory access fault by GPU node-1 on address 0x0",)}
BUSY = {"state": "hang", "activity": "busy", "evidence": ("no answer in 60 s",)}


def ids(results):
    return [finding.id for finding in diagnose(results)]


def finding(results, name):
    return next(each for each in diagnose(results) if each.id == name)


def healthy(**arguments):
    return run(machine=card("gfx1100", "gfx1100"), **arguments)


class TestVocabulary:
    def test_names_are_unique_and_every_cause_sits_in_a_layer(self):
        names = [cause.name for cause in causes()]
        assert len(set(names)) == len(names)
        assert {cause.layer for cause in causes()} <= {layer.name for layer in layers()}
        assert all(cause.title and cause.sentence.endswith(".") and cause.source for cause in causes())


def test_a_healthy_machine_has_no_findings():
    assert ids(healthy()) == []
    assert ids(run(backend="onednn")) == []


class TestIsaMismatch:
    @every_row(
        ("native", "effective", "changes", "severity"),
        [
            ("gfx1010", "gfx1030", {}, "warning"),
            ("gfx1010", "gfx1030", DEAD, "error"),
            ("gfx1010", "gfx1030", {"default/gemm/*": "wrong"}, "error"),
            ("gfx1010", "gfx1030", {"cpu/convolution/*": "wrong"}, "warning"),
            ("gfx1031", "gfx1030", {}, "info"),
            ("gfx1031", "gfx1030", DEAD, "info"),
            ("gfx9999", "gfx1030", {}, "warning"),
        ],
    )
    def test_severity(self, native, effective, changes, severity):
        found = finding(run(changes, machine=card(native, effective)), "isa-mismatch-0")
        assert found.severity == severity
        assert native in found.title
        assert effective in found.title
        assert found.cause == "override-isa-mismatch"

    @every_row("isas", [("gfx1010", "gfx1010"), (None, "gfx1030"), ("gfx1010", None)])
    def test_none_where_there_is_no_mismatch_or_no_knowledge(self, isas):
        assert ids(run(machine=card(*isas))) == []

    def test_what_is_unknown_is_not_promised(self):
        assert "not known" in finding(run(machine=card("gfx9999", "gfx1030")), "isa-mismatch-0").title


class TestNativeConvolution:
    def test_every_native_setting_fails_and_the_rest_works(self):
        found = finding(run(DEAD), "native-convolution")
        assert found.severity == "error"
        assert found.layer == "miopen-find"
        assert found.cause == "miopen-no-solver"
        assert "MIOpen fails on float32 convolution" in found.title
        assert "(9 of 9 settings)" in found.title
        assert "correct (PyTorch's own kernels, rocmprobe's bypass" in found.title
        assert any("miopenStatusUnknownError" in line for line in found.evidence)

    def test_some_native_settings_work(self):
        results = run({**natively("wrong"), "no-winograd/*": "pass"})
        found = finding(results, "native-convolution")
        assert (found.cause, found.layer) == ("wrong-results-solver", "miopen-exec")
        assert "is correct with Winograd switched off" in found.title

        # A blocked setting does not count as failing.
        results = run({**DEAD, "find-fast/convolution/*": "blocked"})
        assert "(8 of 9 settings)" in finding(results, "native-convolution").title

        # Blocked proves nothing.
        assert "native-convolution" not in ids(run({"default/convolution/*": "blocked"}))

    def test_with_and_without_the_library(self):
        found = finding(run({"*/convolution/*": "wrong"}), "native-convolution")
        assert "with and without MIOpen" in found.title
        assert found.layer == "hip"

        # What was not asked is not claimed.
        only_native = run(DEAD, wanted="no-winograd")
        found = finding(only_native, "native-convolution")
        assert "was not tested" in found.title
        assert found.layer.startswith("miopen")
        blocked = {**DEAD, "vendor-off/*": "blocked", "bypass*/*": "blocked"}
        assert "was not tested" in finding(run(blocked), "native-convolution").title

    def test_evidence_that_names_another_layer_is_believed(self):
        other = {"state": "error", "evidence": ("RuntimeError: HIP error: invalid device function",)}
        found = finding(run({**DEAD, **natively(other)}), "native-convolution")
        assert found.layer == "torch-build"
        assert "MIOpen is the layer at fault" not in found.title

        # A compilation that outlasts its budget is called so.
        hang = {"state": "hang", "activity": "compiler-child", "evidence": ("no answer in 60 s",)}
        found = finding(run({**DEAD, **natively(hang)}), "native-convolution")
        assert (found.cause, found.layer) == ("cold-compile-slow", "miopen-compile")

    @every_row(("backend", "layer"), [("onednn", "onednn"), ("cudnn", "cudnn")])
    def test_other_libraries_are_layers_of_their_own(self, backend, layer):
        results = run({"default/convolution/*": "wrong"}, backend=backend)
        assert finding(results, "native-convolution").layer == layer

    @every_row(
        ("cured", "ending", "native", "expected"),
        [
            (("no-winograd",), CRASH, "gfx1030", ("miopen-solver-bug", "miopen-exec")),
            (("no-winograd",), FAULT, "gfx1030", ("miopen-solver-bug", "miopen-exec")),
            (("no-winograd",), BUSY, "gfx1030", ("miopen-solver-bug", "miopen-exec")),
            (("find-fast",), BUSY, "gfx1030", ("cold-compile-slow", "miopen-find")),
            (("clean-db",), CRASH, "gfx1030", ("miopen-db-unusable", "miopen-exec")),
            (("clean-db",), STATUS, "gfx1030", ("miopen-db-unusable", "miopen-exec")),
            (("clean-db", "no-igemm"), CRASH, "gfx1030", ("miopen-solver-bug", "miopen-exec")),
            ((), CRASH, "gfx1030", ("unknown", "miopen-exec")),
            ((), CRASH, "gfx1010", ("override-isa-mismatch", "miopen-exec")),
            ((), STATUS, "gfx1010", ("miopen-no-solver", "miopen-find")),
        ],
    )
    def test_what_cures_it_tells_the_cause(self, cured, ending, native, expected):
        changes = {**natively(ending), **{f"{name}/*": "pass" for name in cured}}
        found = finding(run(changes, machine=card(native, "gfx1030")), "native-convolution")
        assert (found.cause, found.layer) == expected

    @every_row("backend", LIBRARIES)
    def test_only_float16_is_wrong(self, backend):
        results = run({f"*/convolution/{FP16}/*": "wrong", "vendor-off/*": "pass"}, backend=backend)
        found = finding(results, "native-float16")
        assert found.cause == "fp16-broken"
        assert found.severity == "warning"
        assert "native-convolution" not in ids(results)

    def test_what_cures_float16_is_named(self):
        results = run({f"*/convolution/{FP16}/*": "wrong", "no-winograd/*": "pass"})
        assert "Winograd switched off" in finding(results, "native-float16").advice


class TestLadder:
    @every_row(
        ("rung", "layer", "elsewhere"),
        [
            ("copy", "hip", "torch-build"),
            ("elementwise", "torch-build", "torch-build"),
            ("gemm", "rocblas", "torch-build"),
            ("im2col", "torch-build", "torch-build"),
        ],
    )
    @every_row("state", ["wrong", "error", "crash", "hang", "flaky", "aborted"])
    def test_the_rung_names_the_layer(self, rung, layer, elsewhere, state):
        assert finding(run({f"default/{rung}/*": state}), f"rung-{rung}").layer == layer
        assert finding(run({f"default/{rung}/*": state}, backend="onednn"), f"rung-{rung}").layer == elsewhere

    def test_only_the_lowest_is_told(self):
        found = ids(run({"default/copy/*": "error", "default/gemm/*": "error"}))
        assert "rung-copy" in found
        assert "rung-gemm" not in found

        # Blocked is not broken.
        assert not [each for each in ids(run({"default/gemm/*": "blocked"})) if each.startswith("rung")]

    def test_what_fails_in_gemm_has_its_cause(self):
        # A memory fault in GEMM is not MIOpen's.
        fault = {"state": "crash", "evidence": ("Memory access fault by GPU node-1 on address 0x0",)}
        found = finding(run({"default/gemm/float32": fault}), "rung-gemm")
        assert (found.cause, found.layer) == ("override-isa-mismatch", "rocblas")
        silicon = {**fault, "native_isa": "gfx1030", "effective_isa": "gfx1030"}
        found = finding(run({"default/gemm/float32": silicon}), "rung-gemm")
        assert (found.cause, found.layer) == ("gpu-memory-fault-unexplained", "rocblas")

        # Missing tensile files.
        line = "rocBLAS error: Cannot read /lib/rocblas/library/TensileLibrary.dat: No such file"
        found = finding(run({"default/gemm/*": {"state": "crash", "evidence": (line,)}}), "rung-gemm")
        assert (found.cause, found.layer) == ("rocblas-missing-arch", "rocblas")

        # A rung that breaks in float16 alone.
        found = finding(run({"default/gemm/float16": "wrong"}), "rung-gemm-float16")
        assert (found.cause, found.layer, found.severity) == ("fp16-broken", "rocblas", "warning")


ERROR = {
    "state": "error",
    "failure": "miopen-status",
    "evidence": ("RuntimeError: miopenStatusUnknownError",),
}
COMPILER = {"state": "error", "evidence": ("MIOpen Error: hipoc_program.cpp:299: Code object build failed.",)}
#: Checks of what else enters the library: the id of the finding, and its first words.
PRIMITIVES = (
    ("batch-norm", "batch-norm", "Batch norm"),
    ("batch-norm-eval", "batch-norm-in-evaluation", "Batch norm in evaluation"),
    ("rnn", "rnn", "RNN"),
    ("lstm", "lstm", "LSTM"),
    ("gru", "gru", "GRU"),
    ("ctc-loss", "ctc-loss", "CTC loss"),
    ("convolution-relu", "convolution-with-relu-in-one-operator", "Convolution with ReLU in one operator"),
)
TRANSPOSED, DEPTHWISE, DOUBLE = KINDS


class TestPrimitives:
    @every_row(("check", "name", "words"), PRIMITIVES)
    def test_one_that_fails_in_the_library_alone(self, check, name, words):
        results = healthy(changes={f"default/{check}/*": ERROR})
        found = finding(results, name)
        assert found.title == f"{words} fails in MIOpen; it is correct with MIOpen off"
        assert found.layer in ("miopen-exec", "miopen-find")
        assert found.severity == ("error" if check.startswith("batch-norm") else "warning")
        assert "enabled=False" in found.advice
        assert ids(results) == [name]

    @every_row(("check", "name", "words"), PRIMITIVES)
    def test_one_that_fails_without_the_library_too(self, check, name, words):
        found = finding(healthy(changes={f"*/{check}/*": "error"}), name)
        assert found.title == f"{words} fails with and without MIOpen, so the fault is below MIOpen"
        assert found.layer == "torch-build"

    def test_one_whose_twin_was_not_asked_or_that_fails_in_float16_alone(self):
        # One whose twin was not asked.
        found = finding(healthy(changes={"default/lstm/*": "wrong", "vendor-off/lstm/*": "blocked"}), "lstm")
        assert (
            found.title
            == "LSTM computes wrong numbers in MIOpen; whether it works without MIOpen was not tested"
        )
        assert found.cause == "wrong-results-unexplained"

        # One that fails in float16 alone.
        found = finding(healthy(changes={"default/gru/float16": ERROR}), "gru")
        assert found.title == "GRU fails in MIOpen in float16; it is correct with MIOpen off; float32 works"
        batch_norm = finding(healthy(changes={"default/batch-norm/float16": ERROR}), "batch-norm")
        assert batch_norm.severity == "warning"

        # What the evidence names is believed.
        found = finding(healthy(changes={"default/lstm/*": COMPILER}), "lstm")
        assert (found.cause, found.layer) == ("miopen-kernel-compile-failure", "miopen-compile")

    def test_each_is_told_once_and_where_it_fails(self):
        # One that the bypass cannot send to PyTorch has a finding too.
        results = healthy()
        asked = next(each for each in results.outcomes if each.check == "lstm" and each.setting == "default")
        unknown = dataclasses.replace(asked, id=f"{asked.id}-x", check="cumulative-sum", state="wrong")
        found = finding(dataclasses.replace(results, outcomes=(*results.outcomes, unknown)), "cumulative-sum")
        assert found.title == "Cumulative sum computes wrong numbers"
        assert "on the CPU" in found.advice

        # A network that does not train in one dtype has a finding, too.
        asked = next(each for each in results.outcomes if each.check == "training-step")
        trained = [
            dataclasses.replace(
                asked,
                id=f"{asked.id}-{dtype}",
                setting="default",
                check="train-unet",
                dtype=dtype,
                state=state,
            )
            for dtype, state in (("float32", "pass"), ("float16", "wrong"))
        ]
        found = finding(dataclasses.replace(results, outcomes=(*results.outcomes, *trained)), "train-unet")
        assert found.title == "Training of a U-Net computes wrong numbers in float16"
        assert (found.severity, found.layer) == ("warning", "miopen-exec")

        # Batch norm is told once.
        assert ids(healthy(changes={"default/batch-norm*": "error"})) == ["batch-norm"]

        # Float64 which never enters MIOpen points below it.
        found = finding(healthy(changes={f"*/convolution-kinds/{DOUBLE}/*": "wrong"}), "2-d-convolution")
        assert (found.layer, found.cause) == ("torch-build", "wrong-results-unexplained")
        assert "in float64 with and without MIOpen" in found.title

    @every_row(
        ("problem", "name"),
        [(TRANSPOSED, "transposed-2-d-convolution"), (DEPTHWISE, "depthwise-convolution")],
    )
    def test_kinds_of_convolution_have_a_finding_each(self, problem, name):
        results = healthy(changes={f"default/convolution-kinds/{problem}/*": STATUS})
        assert ids(results) == [name]
        assert finding(results, name).layer == "miopen-find"
        assert recommend(results).verdict == "native"

    @every_row(("backend", "scope"), [("onednn", "mkldnn"), ("cudnn", "cudnn")])
    def test_other_libraries(self, backend, scope):
        found = finding(run({"default/lstm/*": "wrong"}, backend=backend), "lstm")
        assert found.layer == backend
        assert f"torch.backends.{scope}.flags(enabled=False)" in found.advice

    @every_row("state", ["blocked", "n/a", "skipped", "pass"])
    def test_what_was_not_asked_or_holds_is_not_told(self, state):
        assert ids(healthy(changes={f"*/{check}/*": state for check, _, _ in PRIMITIVES})) == []


class TestControls:
    def test_a_control_points_below_the_library(self):
        found = finding(healthy(changes={"default/softmax/*": "wrong"}), "controls")
        assert (found.severity, found.layer) == ("error", "torch-build")
        assert "(softmax)" in found.title
        assert "below MIOpen" in found.title

        # In float16 alone it is a warning.
        found = finding(healthy(changes={"default/softmax/float16": "error"}), "controls")
        assert found.severity == "warning"
        assert "in float16" in found.title


class TestOtherLayers:
    def test_training_steps_and_the_bypass(self):
        # A step under autocast.
        found = finding(healthy(changes={"default/autocast-step/*": "wrong"}), "autocast-step")
        assert found.severity == "warning"
        assert "autocast to float16" in found.title

        # A training step that fails although its parts pass.
        results = run({"default/training-step/*": "wrong"})
        assert act_on(dataclasses.replace(results, findings=diagnose(results)))
        assert "training-step" in ids(results)
        assert "training-step" not in ids(run({"default/training-step/*": "blocked"}))
        assert "each of its layers passed alone" in finding(results, "training-step").title
        # Batch norm was not tested.
        fewer = tuple(each for each in results.outcomes if each.check != "batch-norm")
        found = finding(dataclasses.replace(results, outcomes=fewer), "training-step")
        assert found.title == "A small network does not train correctly with MIOpen"

        # The bypass is blamed only where GEMM holds.
        broken = {f"bypass/convolution/{FP32}/fwd": "wrong"}
        assert finding(run(broken), "bypass").layer == "rocmprobe"
        assert finding(run({**broken, "default/gemm/*": "wrong"}), "bypass").layer == "rocblas"

    @every_row(("backend", "layer"), [("miopen", "miopen-find"), ("onednn", "onednn")])
    def test_slow_fallbacks(self, backend, layer):
        found = finding(run({"default/convolution/*": "slow"}, backend=backend), "fallback-solver")
        assert (found.cause, found.layer) == ("slow-no-tuned-kernels", layer)

    def test_clean_environments_and_those_of_the_user(self):
        # As found fails where a clean environment holds.
        results = run({f"as-found/convolution/{FP32}/fwd": "error"}, wanted="all")
        assert finding(results, "as-found").layer == "user-env"
        both = run({f"*/convolution/{FP32}/fwd": "error"}, wanted="all")
        assert "as-found" not in ids(both)
        machine = dataclasses.replace(
            results.machine, variables={"MIOPEN_FIND_MODE": Fact("FAST_HYBRID", "environment")}
        )
        rejected = run({f"as-found/convolution/{FP32}/fwd": "error"}, wanted="all", machine=machine)
        assert finding(rejected, "as-found").advice.startswith(
            "Run `unset MIOPEN_FIND_MODE`. If the tests still"
        )

        # A clean environment fails where as found holds.
        results = run({f"default/convolution/{FP32}/fwd": "error"}, wanted="all")
        found = finding(results, "only-as-found")
        assert found.title == "1 case passed only in your own environment, and failed in a clean one"
        assert found.evidence[0].startswith("cuda:0/default/convolution/")
        assert "only-as-found" not in ids(run({f"*/convolution/{FP32}/fwd": "error"}, wanted="all"))

    @every_row("reason", DAMAGED)
    def test_damaged_databases_are_named_and_moved_away(self, reason):
        outcome = {**STATUS, "evidence": (reason, "RuntimeError: miopenStatusUnknownError")}
        found = finding(run({f"as-found/convolution/{FP32}/fwd": outcome}, wanted="all"), "as-found")
        assert (found.cause, found.layer) == ("miopen-db-unusable", "miopen-exec")
        assert "`mv ~/.config/miopen ~/.config/miopen.old; mv ~/.cache/miopen" in found.advice
        assert "`rocmprobe exec` gives programs clean databases" in found.advice

    def test_what_went_wrong_in_the_run_itself(self):
        # A wedged device.
        results = run({**DEAD, "cpu/*": {"state": "blocked", "failure": "gpu-wedged"}})
        assert finding(results, "gpu-wedged").cause == "gpu-hang-reset"

        # Our own failure is told.
        found = finding(run({"default/gemm/float32": "probe-error"}), "probe-error")
        assert found.layer == "rocmprobe"

        # A crash after the last result is information.
        trial = Trial("cuda:0/default#1", "cuda:0", "default", "spawn", "SIGSEGV", True)
        results = dataclasses.replace(healthy(), trials=(trial,))
        assert finding(results, "exit-crash").severity == "info"

    @every_row("kind", ["cpu", "cuda"])
    def test_a_torch_built_for_something_else(self, kind):
        machine = Machine(
            (Gpu(vendor=Fact("amd", "PCI"), name=Fact("RX 5600 XT", "table")),),
            {"torch.kind": Fact(kind, "torch/version.py"), "torch.version": Fact("2.7.0", "torch")},
        )
        found = finding(run(backend="onednn", machine=machine), "wrong-torch-build")
        assert (found.layer, found.severity) == ("torch-build", "warning")
        asked_for_cpu = run(backend="onednn", machine=machine, options={"device": "cpu"})
        assert finding(asked_for_cpu, "wrong-torch-build").severity == "info"


@every_row(
    ("line", "cause"),
    [
        ("RuntimeError: HIP error: invalid device function", "arch-not-in-wheel"),
        ("hipErrorNoBinaryForGpu: Unable to find code object for all current devices!", "arch-not-in-wheel"),
        ("aborting with error : HSA_STATUS_ERROR_INVALID_ISA code: 0x100f", "override-isa-mismatch"),
        ("MIOpen Error: stoul", "miopen-env-misparse"),
        ("torch.cuda.OutOfMemoryError: HIP out of memory.", "vram-oom"),
        ("Internal error while accessing SQLite database: disk I/O error", "miopen-db-unusable"),
        ("Error [BuildHip] HIPRTC status = HIPRTC_ERROR_COMPILATION (6)", "miopen-kernel-compile-failure"),
        ("MIOpen Error: src/hipoc/hipoc_program.cpp:257: Cant find file: /tmp/miopen-a.cl-1/a.cl.o",
         "miopen-kernel-compile-failure"),
        ("MIOpen Error: src/hip/hip_build_utils.cpp:186: Failed cmd: 'clang++', args: ' -o a.cpp.o'",
         "miopen-kernel-compile-failure"),
        ("MIOpen Error: rig:build/kernel.cpp:444: Failed to load kernel source: a.s",
         "miopen-kernel-source-missing"),
        ("No suitable algorithm was found to execute the required convolution", "miopen-no-solver"),
        ("something else", None),
    ],
)  # fmt: skip
def test_signature(line, cause):
    outcomes = run({f"default/convolution/{FP32}/fwd": {"state": "error", "evidence": (line,)}}).outcomes
    named = signature(Evidence(run()), outcomes)
    assert (named[0] if named else None) == cause


@every_row(
    ("cause", "state", "named"),
    [
        ("oom-kill", "crash", ("unknown", "oom")),
        ("out-of-memory", "error", ("vram-oom", "oom")),
        ("torch-unusable", "error", ("unknown", "torch-build")),
        ("SIGSEGV", "crash", ("unknown", "miopen-exec")),
    ],
)  # fmt: skip
def test_how_a_process_ended_names_the_layer_where_no_line_does(cause, state, named):
    outcomes = run({f"default/convolution/{FP32}/fwd": {"state": state, "failure": cause}}).outcomes
    failed = tuple(outcome for outcome in outcomes if outcome.state == state)
    assert blamed(Evidence(run()), failed, "miopen-exec") == named


def test_a_bypass_that_fails_below_itself_is_no_bug_of_it():
    lines = ("RuntimeError: HIP error: invalid device function",)
    found = finding(run({"*/convolution/*": {"state": "error", "evidence": lines}}), "bypass")
    assert (found.cause, found.layer) == ("arch-not-in-wheel", "torch-build")
    assert "bug in rocmprobe" not in found.advice
    own = finding(run({"bypass/convolution/*": "wrong"}), "bypass")
    assert (own.layer, "bug in rocmprobe" in own.advice) == ("rocmprobe", True)


@every_row("asked", ["*", f"*/convolution/{FP32}/*"])
def test_a_torch_that_cannot_be_imported_explains_all_that_fails(asked):
    import_error = "import torch: OSError: libamdhip64.so.5: cannot open shared object file: No such file"
    results = run({asked: {"state": "error", "failure": "torch-unusable", "evidence": (import_error,)}})
    results = dataclasses.replace(
        results, outcomes=tuple(each for each in results.outcomes if each.state == "error")
    )
    (found,) = (each for each in diagnose(results) if each.severity == "error")
    assert (found.title, found.cause) == ("torch cannot be imported", "library-path")
    assert import_error in found.evidence[0]


@every_row(
    ("ended", "facts", "title", "remedy"),
    [
        ({"state": "crash", "failure": "SIGSEGV"}, {}, "The import of torch ends with SIGSEGV",
         "rocmprobe install"),
        ({"state": "hang", "failure": "timeout"}, {}, "The import of torch hangs", "rocmprobe install"),
        ({"state": "crash", "failure": "oom-kill"}, {"memory.limit_bytes": 1 << 28},
         "torch cannot be imported: the control group allows 256 MiB of memory", "docker run --memory 16g"),
        ({"state": "error", "failure": "torch-unusable",
          "evidence": ("import torch: ImportError: libtorch.so: failed to map segment from shared object",)},
         {"limits.address_space_bytes": 1 << 28},
         "torch cannot be imported: `ulimit -v` allows 256 MiB of address space", "ulimit -v unlimited"),
        ({"state": "crash", "failure": "SIGABRT",
          "evidence": ("libgomp: Thread creation failed: Resource temporarily unavailable",)},
         {"limits.processes": 9},
         "torch cannot be imported: `ulimit -u` allows 9 processes and threads", "ulimit -u 4096"),
    ],
)  # fmt: skip
def test_an_import_that_fails_is_named_with_the_limit_that_it_reached(ended, facts, title, remedy):
    ending = {"status": "SIGSEGV"}
    machine = card("gfx1010", "gfx1010")
    known = {name: Fact(value, "test") for name, value in facts.items()}
    machine = dataclasses.replace(machine, facts={**machine.facts, **known})
    results = run({"*": {"evidence": (), "phase": "start", "ending": ending, **ended}}, machine=machine)
    judged = judge(results)
    (error,) = (each for each in judged.findings if each.severity == "error")
    assert (error.title, error.remedy) == (title, remedy)
    assert (judged.recommendation.verdict, judged.recommendation.sentence) == (
        "not-judged", f"{title}. Nothing was tested.",
    )  # fmt: skip
    rungs = ladder.device(judged, "cuda:0").ladder
    assert rungs.caption == "Setting “default”: Import of torch is the first layer that fails."
    assert {rung.detail for rung in rungs.rungs[1:]} == {"not run"}


def test_an_import_that_crashes_under_one_setting_is_no_failed_copy():
    crash = {"state": "crash", "failure": "SIGSEGV", "phase": "start", "ending": {"status": "SIGSEGV"}}
    found = finding(run({"default/*": crash}), "rung-copy")
    assert found.title == "With the default settings, torch cannot be imported"


CRASHED_IN_HIP = {
    "state": "crash", "failure": "SIGSEGV", "phase": "first-call",
    "evidence": (
        "the process ended with SIGSEGV in phase first-call", "Fatal Python error: Segmentation fault",
        "/usr/lib/x86_64-linux-gnu/libamdhip64.so.6(+0x1f2a40)",
    ),
}  # fmt: skip


@every_row(
    ("targets", "cause"),
    [(["gfx1010"], "unknown"), (["gfx900", "gfx1030"], "arch-not-in-wheel"), (None, "arch-not-in-wheel")],
)
def test_a_crash_below_everything_is_not_blamed_on_a_torch_that_holds_the_chip(targets, cause):
    machine = card("gfx1010", "gfx1010")
    machine = dataclasses.replace(machine, facts={**machine.facts, "torch.targets": Fact(targets, "files")})
    found = finding(run({"*/copy/*": CRASHED_IN_HIP}, machine=machine), "rung-copy")
    ruled_out = "not arch-not-in-wheel: the installed PyTorch has code for the chip that the runtime sees"
    assert (found.cause, ruled_out in found.evidence) == (cause, targets == ["gfx1010"])
    if cause == "unknown":
        assert found.layer == "hip"


def test_a_fault_of_the_installation_comes_with_what_mends_it():
    missing = {
        **STATUS,
        "evidence": (
            "RuntimeError: miopenStatusUnknownError", "sh: 1: /build/miopen/clang-21: not found",
            "MIOpen Error: src/hipoc/hipoc_program.cpp:257: Cant find file: /tmp/miopen-a/Im2Col.cl.o",
        ),
    }  # fmt: skip
    found = finding(run({**natively(missing), **blocked_by_convolution()}), "native-convolution")
    assert (found.cause, found.layer) == ("jit-compiler-missing", "miopen-compile")
    assert "ln -s" in found.advice
    assert "Until then: Use the recommended configuration" in found.advice


def test_a_layer_below_convolution_is_told_with_the_setting_that_cures_it():
    results = run({"default/gemm/float16": "error"})
    cure = next(row for row in with_cures("miopen", "default", TORCH) if row.name == "no-interrupt")

    def under_the_cure(state: str) -> Results:
        again = [
            dataclasses.replace(
                each, id=each.id.replace("default", cure.name), setting=cure.name, state=state
            )
            for each in results.outcomes
            if each.id.startswith("cuda:0/default/gemm") and each.state == "error"
        ]
        return dataclasses.replace(
            results, settings=(*results.settings, cure), outcomes=(*results.outcomes, *again)
        )

    cured = finding(under_the_cure("pass"), "rung-gemm-float16")
    assert cured.title.endswith("float32 works; with HSA_ENABLE_INTERRUPT=0 it works")
    assert cured.advice.startswith("Set `HSA_ENABLE_INTERRUPT=0` before Python starts.")
    assert finding(under_the_cure("wrong"), "rung-gemm-float16").advice == "Stay with float32."
