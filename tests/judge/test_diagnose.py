"""Findings: what is told, how gravely, and which layer it blames."""

from __future__ import annotations

import dataclasses

import pytest
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


ERROR = {
    "state": "error",
    "failure": "miopen-status",
    "evidence": ("RuntimeError: miopenStatusUnknownError",),
}
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


def torch_for(kind):
    """A machine with an AMD GPU and a torch for something else."""
    return Machine(
        (Gpu(vendor=Fact("amd", "PCI"), name=Fact("RX 5600 XT", "table")),),
        {"torch.kind": Fact(kind, "torch/version.py"), "torch.version": Fact("2.7.0", "torch")},
    )


HEALTHY = card("gfx1100", "gfx1100")
FIRST = f"convolution/{FP32}/fwd"
FAULT_IN_GEMM = {"default/gemm/float32": FAULT}
SILICON = {**FAULT, "native_isa": "gfx1030", "effective_isa": "gfx1030"}
NO_TENSILE = "rocBLAS error: Cannot read /lib/rocblas/library/TensileLibrary.dat: No such file"
NO_CODE = "RuntimeError: HIP error: invalid device function"
SLOW_COMPILER = {"state": "hang", "activity": "compiler-child", "evidence": ("no answer in 60 s",)}
COMPILER = {"state": "error", "evidence": ("MIOpen Error: hipoc_program.cpp:299: Code object build failed.",)}
DOUBLE_WRONG = {f"*/convolution-kinds/{DOUBLE}/*": "wrong"}


def rule(words, name, changes, /, severity="error", cause="", layer="", title="", advice="", evidence="",
         **fields):  # fmt: skip
    """A row: the rule, the id of the finding, a run, and what the finding says."""
    return pytest.param(name, changes, fields, severity, cause, layer, title, advice, evidence, id=words)


@pytest.mark.parametrize(
    ("name", "changes", "fields", "severity", "cause", "layer", "title", "advice", "evidence"),
    [
        rule("an override of an unknown chip", "isa-mismatch-0", {}, "warning", title="not known",
             machine=card("gfx9999", "gfx1030")),
        # Native convolution.
        rule("it fails under every setting of the library", "native-convolution", DEAD,
             cause="miopen-no-solver", layer="miopen-find", title="(9 of 9 settings)",
             evidence="miopenStatusUnknownError"),
        rule("it works without the library", "native-convolution", DEAD,
             title="correct (PyTorch's own kernels, rocmprobe's bypass"),
        rule("one setting works", "native-convolution", {**natively("wrong"), "no-winograd/*": "pass"},
             cause="wrong-results-solver", layer="miopen-exec",
             title="is correct with Winograd switched off"),
        rule("a blocked setting does not count", "native-convolution",
             {**DEAD, "find-fast/convolution/*": "blocked"}, title="(8 of 9 settings)"),
        rule("it fails without the library too", "native-convolution", {"*/convolution/*": "wrong"},
             layer="hip", title="with and without MIOpen"),
        rule("nothing without the library was tested", "native-convolution", DEAD, wanted="no-winograd",
             layer="miopen-find", title="was not tested"),
        rule("all without the library was blocked", "native-convolution",
             {**DEAD, "vendor-off/*": "blocked", "bypass*/*": "blocked"}, title="was not tested"),
        rule("evidence names another layer", "native-convolution",
             {**DEAD, **natively({"state": "error", "evidence": (NO_CODE,)})}, layer="torch-build"),
        rule("a compilation that outlasts its budget", "native-convolution",
             {**DEAD, **natively(SLOW_COMPILER)}, cause="cold-compile-slow", layer="miopen-compile"),
        rule("oneDNN", "native-convolution", {"default/convolution/*": "wrong"}, layer="onednn",
             backend="onednn"),
        rule("cuDNN", "native-convolution", {"default/convolution/*": "wrong"}, layer="cudnn",
             backend="cudnn"),
        *(rule(f"only float16 is wrong in {backend}", "native-float16",
               {f"*/convolution/{FP16}/*": "wrong", "vendor-off/*": "pass"}, "warning", "fp16-broken",
               backend=backend) for backend in LIBRARIES),
        rule("a setting cures float16", "native-float16",
             {f"*/convolution/{FP16}/*": "wrong", "no-winograd/*": "pass"}, "warning",
             advice="Winograd switched off"),
        # The ladder.
        rule("a memory fault in GEMM is not MIOpen's", "rung-gemm", FAULT_IN_GEMM,
             cause="override-isa-mismatch", layer="rocblas"),
        rule("a memory fault without an override", "rung-gemm", {"default/gemm/float32": SILICON},
             cause="gpu-memory-fault-unexplained", layer="rocblas"),
        rule("missing Tensile files", "rung-gemm",
             {"default/gemm/*": {"state": "crash", "evidence": (NO_TENSILE,)}},
             cause="rocblas-missing-arch", layer="rocblas"),
        rule("a rung that fails in float16 only", "rung-gemm-float16", {"default/gemm/float16": "wrong"},
             "warning", "fp16-broken", "rocblas"),
        rule("an import that crashes under one setting is no failed copy", "rung-copy",
             {"default/*": {**CRASH, "phase": "start", "ending": {"status": "SIGSEGV"}}},
             title="With the default settings, torch cannot be imported"),
        # Layers.
        rule("nothing shows if the library is at fault", "lstm",
             {"default/lstm/*": "wrong", "vendor-off/lstm/*": "blocked"}, "warning",
             "wrong-results-unexplained", machine=HEALTHY,
             title="LSTM computes wrong numbers in MIOpen; whether it works without MIOpen was not tested"),
        rule("a layer that fails in float16 only", "gru", {"default/gru/float16": ERROR}, "warning",
             title="GRU fails in MIOpen in float16; it is correct with MIOpen off; float32 works",
             machine=HEALTHY),
        rule("batch norm in float16 only", "batch-norm", {"default/batch-norm/float16": ERROR}, "warning",
             machine=HEALTHY),
        rule("evidence names the compiler", "lstm", {"default/lstm/*": COMPILER}, "warning",
             "miopen-kernel-compile-failure", "miopen-compile", machine=HEALTHY),
        rule("float64 never enters MIOpen", "2-d-convolution", DOUBLE_WRONG, "warning",
             "wrong-results-unexplained", "torch-build", title="in float64 with and without MIOpen",
             machine=HEALTHY),
        rule("a layer in oneDNN", "lstm", {"default/lstm/*": "wrong"}, "warning", layer="onednn",
             advice="torch.backends.mkldnn.flags(enabled=False)", backend="onednn"),
        rule("a layer in cuDNN", "lstm", {"default/lstm/*": "wrong"}, "warning", layer="cudnn",
             advice="torch.backends.cudnn.flags(enabled=False)", backend="cudnn"),
        rule("a control that fails", "controls", {"default/softmax/*": "wrong"}, layer="torch-build",
             title="(softmax)", machine=HEALTHY),
        rule("a control points below the library", "controls", {"default/softmax/*": "wrong"},
             title="below MIOpen", machine=HEALTHY),
        rule("a control in float16 only", "controls", {"default/softmax/float16": "error"}, "warning",
             title="in float16", machine=HEALTHY),
        # Networks, the bypass, environments.
        rule("a step under autocast", "autocast-step", {"default/autocast-step/*": "wrong"}, "warning",
             title="autocast to float16", machine=HEALTHY),
        rule("a training step whose parts pass", "training-step", {"default/training-step/*": "wrong"},
             title="each of its layers passed alone"),
        rule("the bypass fails alone", "bypass", {f"bypass/{FIRST}": "wrong"}, "error", layer="rocmprobe",
             advice="bug in rocmprobe"),
        rule("the bypass fails where GEMM fails", "bypass",
             {f"bypass/{FIRST}": "wrong", "default/gemm/*": "wrong"}, "error", layer="rocblas"),
        rule("the bypass fails below itself", "bypass",
             {"*/convolution/*": {"state": "error", "evidence": (NO_CODE,)}}, "error", "arch-not-in-wheel",
             "torch-build"),
        rule("slow fallbacks in MIOpen", "fallback-solver", {"default/convolution/*": "slow"}, "info",
             "slow-no-tuned-kernels", "miopen-find"),
        rule("slow fallbacks in oneDNN", "fallback-solver", {"default/convolution/*": "slow"}, "info",
             "slow-no-tuned-kernels", "onednn", backend="onednn"),
        rule("only the own environment fails", "as-found", {f"as-found/{FIRST}": "error"}, "error",
             layer="user-env", wanted="all"),
        rule("a variable of it is rejected", "as-found", {f"as-found/{FIRST}": "error"}, "error",
             advice="Run `unset MIOPEN_FIND_MODE`. If the tests still", wanted="all",
             machine=dataclasses.replace(
                 card(), variables={"MIOPEN_FIND_MODE": Fact("FAST_HYBRID", "environment")})),
        rule("only a clean environment fails", "only-as-found", {f"default/{FIRST}": "error"}, "warning",
             title="1 case passed only in your own environment, and failed in a clean one",
             evidence="cuda:0/default/convolution/", wanted="all"),
        *(rule("a damaged database", "as-found",
               {f"as-found/{FIRST}": {**STATUS, "evidence": (reason, "miopenStatusUnknownError")}}, "error",
               "miopen-db-unusable", "miopen-exec", wanted="all",
               advice="`mv ~/.config/miopen ~/.config/miopen.old; mv ~/.cache/miopen") for reason in DAMAGED),
        rule("a damaged database, and programs", "as-found",
             {f"as-found/{FIRST}": {**STATUS, "evidence": (DAMAGED[0], "miopenStatusUnknownError")}},
             "error", advice="`rocmprobe exec` gives programs clean databases", wanted="all"),
        # The run itself.
        rule("a device that stopped answering", "gpu-wedged",
             {**DEAD, "cpu/*": {"state": "blocked", "failure": "gpu-wedged"}}, cause="gpu-hang-reset"),
        rule("an error of rocmprobe", "probe-error", {"default/gemm/float32": "probe-error"}, "warning",
             layer="rocmprobe"),
        rule("a crash after the last result", "exit-crash", {}, "info", machine=HEALTHY,
             trials=(Trial("cuda:0/default#1", "cuda:0", "default", "spawn", "SIGSEGV", True),)),
        *(rule(f"a torch for {kind} and an AMD GPU", "wrong-torch-build", {}, severity, layer="torch-build",
               backend="onednn", machine=torch_for(kind), options=options)
          for kind in ("cpu", "cuda")
          for options, severity in (({}, "warning"), ({"device": "cpu"}, "info"))),
    ],
)  # fmt: skip
def test_the_finding(name, changes, fields, severity, cause, layer, title, advice, evidence):
    found = finding(run(changes, **fields), name)
    assert (found.severity, found.cause, found.layer) == (
        severity, cause or found.cause, layer or found.layer,
    )  # fmt: skip
    assert title in found.title
    assert advice in found.advice
    assert evidence in "\n".join(found.evidence)


@pytest.mark.parametrize(
    ("name", "changes", "fields"),
    [
        ("native-convolution", {"default/convolution/*": "blocked"}, {}),
        ("native-convolution", {f"*/convolution/{FP16}/*": "wrong", "vendor-off/*": "pass"}, {}),
        ("rung-gemm", {"default/copy/*": "error", "default/gemm/*": "error"}, {}),
        ("rung-gemm", {"default/gemm/*": "blocked"}, {}),
        ("training-step", {"default/training-step/*": "blocked"}, {}),
        ("as-found", {f"*/{FIRST}": "error"}, {"wanted": "all"}),
        ("only-as-found", {f"*/{FIRST}": "error"}, {"wanted": "all"}),
        ("isa-mismatch-0", {}, {"machine": card("gfx1010", "gfx1010")}),
        ("isa-mismatch-0", {}, {"machine": card(None, "gfx1030")}),
        ("isa-mismatch-0", {}, {"machine": card("gfx1010", None)}),
    ],
)
def test_no_finding(name, changes, fields):
    assert name not in ids(run(changes, **fields))


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (run(machine=HEALTHY), []),
        (run(backend="onednn"), []),
        (run({"default/batch-norm*": "error"}, machine=HEALTHY), ["batch-norm"]),
        *((run({f"*/{check}/*": state for check, _, _ in PRIMITIVES}, machine=HEALTHY), [])
          for state in ("blocked", "n/a", "skipped", "pass")),
    ],
)  # fmt: skip
def test_all_findings(results, expected):
    assert ids(results) == expected


@pytest.mark.parametrize(
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
def test_severity_of_an_override(native, effective, changes, severity):
    found = finding(run(changes, machine=card(native, effective)), "isa-mismatch-0")
    assert (found.severity, found.cause) == (severity, "override-isa-mismatch")
    assert native in found.title
    assert effective in found.title


@pytest.mark.parametrize(
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
def test_the_cure_tells_the_cause(cured, ending, native, expected):
    changes = {**natively(ending), **{f"{name}/*": "pass" for name in cured}}
    found = finding(run(changes, machine=card(native, "gfx1030")), "native-convolution")
    assert (found.cause, found.layer) == expected


@pytest.mark.parametrize(
    ("rung", "layer", "elsewhere"),
    [
        ("copy", "hip", "torch-build"),
        ("elementwise", "torch-build", "torch-build"),
        ("gemm", "rocblas", "torch-build"),
        ("im2col", "torch-build", "torch-build"),
    ],
)
@pytest.mark.parametrize("state", ["wrong", "error", "crash", "hang", "flaky", "aborted"])
def test_the_rung_names_the_layer(rung, layer, elsewhere, state):
    assert finding(run({f"default/{rung}/*": state}), f"rung-{rung}").layer == layer
    assert finding(run({f"default/{rung}/*": state}, backend="onednn"), f"rung-{rung}").layer == elsewhere


@pytest.mark.parametrize(("check", "name", "words"), PRIMITIVES)
def test_a_layer_that_fails_in_the_library_only_or_everywhere(check, name, words):
    results = run({f"default/{check}/*": ERROR}, machine=HEALTHY)
    found = finding(results, name)
    assert found.title == f"{words} fails in MIOpen; it is correct with MIOpen off"
    assert found.layer in ("miopen-exec", "miopen-find")
    assert found.severity == ("error" if check.startswith("batch-norm") else "warning")
    assert "enabled=False" in found.advice
    assert ids(results) == [name]

    found = finding(run({f"*/{check}/*": "error"}, machine=HEALTHY), name)
    assert found.title == f"{words} fails with and without MIOpen, so the fault is below MIOpen"
    assert found.layer == "torch-build"


@pytest.mark.parametrize(
    ("problem", "name"),
    [(TRANSPOSED, "transposed-2-d-convolution"), (DEPTHWISE, "depthwise-convolution")],
)
def test_kinds_of_convolution_have_a_finding_each(problem, name):
    results = run({f"default/convolution-kinds/{problem}/*": STATUS}, machine=HEALTHY)
    assert ids(results) == [name]
    assert finding(results, name).layer == "miopen-find"
    assert recommend(results).verdict == "native"


def with_more(check, **states):
    """A run with another check under default, with a state for each dtype."""
    results = run(machine=HEALTHY)
    like = next(each for each in results.outcomes if (each.check, each.setting) == ("lstm", "default"))
    more = tuple(
        dataclasses.replace(like, id=f"{like.id}-{dtype}", check=check, dtype=dtype, state=state)
        for dtype, state in states.items()
    )
    return dataclasses.replace(results, outcomes=(*results.outcomes, *more))


def test_a_check_that_the_bypass_cannot_send_to_pytorch():
    found = finding(with_more("cumulative-sum", float32="wrong"), "cumulative-sum")
    assert found.title == "Cumulative sum computes wrong numbers"
    assert "on the CPU" in found.advice


def test_a_network_that_does_not_train_in_one_dtype():
    found = finding(with_more("train-unet", float32="pass", float16="wrong"), "train-unet")
    assert found.title == "Training of a U-Net computes wrong numbers in float16"
    assert (found.severity, found.layer) == ("warning", "miopen-exec")


def test_a_training_step_without_a_test_of_batch_norm():
    results = run({"default/training-step/*": "wrong"})
    assert act_on(dataclasses.replace(results, findings=diagnose(results)))
    fewer = tuple(each for each in results.outcomes if each.check != "batch-norm")
    found = finding(dataclasses.replace(results, outcomes=fewer), "training-step")
    assert found.title == "A small network does not train correctly with MIOpen"


@pytest.mark.parametrize(
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
        ("Given groups=5, weight of size [5, 2, 1, 4], expected input[2, 5, 1, 9] to have 10 channels", None),
        ("something else", None),
    ],
)  # fmt: skip
def test_signature(line, cause):
    outcomes = run({f"default/convolution/{FP32}/fwd": {"state": "error", "evidence": (line,)}}).outcomes
    named = signature(Evidence(run()), outcomes)
    assert (named[0] if named else None) == cause


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("asked", ["*", f"*/convolution/{FP32}/*"])
def test_a_torch_that_cannot_be_imported_explains_all_that_fails(asked):
    import_error = "import torch: OSError: libamdhip64.so.5: cannot open shared object file: No such file"
    results = run({asked: {"state": "error", "failure": "torch-unusable", "evidence": (import_error,)}})
    results = dataclasses.replace(
        results, outcomes=tuple(each for each in results.outcomes if each.state == "error")
    )
    (found,) = (each for each in diagnose(results) if each.severity == "error")
    assert (found.title, found.cause) == ("torch cannot be imported", "library-path")
    assert import_error in found.evidence[0]


@pytest.mark.parametrize(
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


CRASHED_IN_HIP = {
    "state": "crash", "failure": "SIGSEGV", "phase": "first-call",
    "evidence": (
        "the process ended with SIGSEGV in phase first-call", "Fatal Python error: Segmentation fault",
        "/usr/lib/x86_64-linux-gnu/libamdhip64.so.6(+0x1f2a40)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
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
