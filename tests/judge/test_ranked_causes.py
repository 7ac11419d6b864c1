"""Causes ranked from logs and facts: look-alikes, by-standers, what decides, and the labelled corpus."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import every_row
from runs import CHECKOUT
from sample_logs import DAMAGED

from rocmprobe.explain.explain import Explanation, explain
from rocmprobe.explain.log_facts import Facts, facts_in, merge_and_derive
from rocmprobe.explain.signatures import KINDS, rules, signatures
from rocmprobe.explain.situations import KNOWN_WORDS
from rocmprobe.knowledge.causes import SITUATIONS, causes, layers
from rocmprobe.text.log import of_text

try:
    from re import _parser as sre_parse
except ImportError:  # Python 3.10 and older
    import sre_parse

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "train.jsonl"

NOTHING = Facts()
NAVI10 = Facts(true_gfx="gfx1010", torch="1.13.1+rocm5.2", rocm="5.2")
AS_GFX1030 = Facts(
    true_gfx="gfx1010",
    effective_gfx="gfx1030",
    torch="2.0.1+rocm5.4.2",
    env={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"},
)
NAVI21 = Facts(true_gfx="gfx1030", torch="2.0.1+rocm5.4.2")
MI100 = Facts(true_gfx="gfx908")

APERTURE = (
    ":0:rocdevice.cpp :2673: 1 us: 2: [tid:0x7f] Device::callbackQueue aborting with error : "
    "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory beyond the largest "
    "legal address."
)
NO_FUNCTION = "RuntimeError: HIP error: invalid device function"
NO_SOLVER = (
    "MIOpen Error: src/ocl/convolutionocl.cpp:275: No suitable algorithm was found to execute the convolution"
)
KDB = (
    "MIOpen(HIP): Warning [SQLiteBase] Missing system database file: gfx1010_18.kdb Performance may degrade."
)
WORKSPACE = (
    "MIOpen(HIP): Warning [IsEnoughWorkspace] [EvaluateInvokers] Solver <GemmFwdRest>, "
    "workspace required: 1228800, provided ptr: 0 size: 0"
)
NO_HEADER = "/tmp/comgr-1f/include/data_type.hpp:14:10: fatal error: 'limits' file not found"


#: What MIOpen printed on a machine whose package keeps it from compiling; names of folders are our own.
NO_COMPILER = (
    "sh: 1: /build/miopen/build/clang-21: not found\n"
    "MIOpen(HIP): Error [EvaluateInvokers] src/hipoc/hipoc_program.cpp:257: Cant find file: "
    "/tmp/miopen-MIOpenIm2d2Col.cl-aa01/MIOpenIm2d2Col.cl.o\n"
    "RuntimeError: miopenStatusUnknownError"
)
MATH_H = (
    "/usr/lib/gcc/x86_64-linux-gnu/14/../include/c++/14/cmath:55:15: fatal error: 'math.h' file not found"
)
FAILED_COMMAND = (
    "MIOpen Error: src/hip/hip_build_utils.cpp:186: Failed cmd: '/usr/bin/clang++', args: ' -x hip "
    "-isystem /usr/include --hip-link naive_conv.cpp -o /tmp/miopen-naive_conv.cpp-7cce/naive_conv.cpp.o'"
)
NO_SOURCE = (
    "MIOpen Error: src/kernel.cpp:63: Failed to load kernel source: Conv_Winograd_v30_3_1_fp32_f2x3_stride1.s"
)
NO_TARGET = "/tmp/miopen-x/include/utility/config.hpp:21:2: error: Need to define (only) one GPU target"
NO_LLVM = (
    "error: unable to create target: 'Unable to find target for this triple (no targets are registered)'"
)


def answer(text: str, facts: Facts = NOTHING) -> Explanation:
    log = of_text(text)
    return explain(log, merge_and_derive(facts, facts_in(log)))


def score(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CHECKOUT / "benchmarks" / "explain.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def best(text: str, facts: Facts = NOTHING) -> str:
    found = answer(text, facts).causes
    return found[0].cause if found else "nothing"


class TestTheSameTextHasOtherCauses:
    @every_row(
        ("text", "facts", "cause"),
        [
            (NO_FUNCTION, NAVI10, "arch-not-in-wheel"),
            (NO_FUNCTION, NAVI21, "arch-not-in-rocm-lib"),
            (f"{NO_FUNCTION}\nin librccl.so", MI100, "arch-not-in-rocm-lib"),
            (APERTURE, AS_GFX1030, "override-isa-mismatch"),
            ("Memory access fault by GPU node-1 on address 0x7f00. Reason: Unknown.", NAVI21,
             "gpu-memory-fault-unexplained"),
            ("Memory access fault by GPU node-1 on address (nil). Reason: Unknown.", AS_GFX1030,
             "override-isa-mismatch"),
            (NO_SOLVER, NAVI21, "miopen-no-solver"),
            (f"{WORKSPACE}\n{NO_SOLVER}", NAVI21, "workspace-too-small"),
            (NO_SOLVER, Facts(env={"MIOPEN_DEBUG_CONV_DIRECT": "0"}), "miopen-solver-disabled-by-env"),
            (NO_SOLVER, Facts(env={"MIOPEN_DEBUG_CONV_DIRECT": "1"}), "miopen-no-solver"),
            ("/MIOpen/src/sqlite_db.cpp:108: open memvfs: unable to open database file\n"
             "MIOpen Error: Forward Convolution cannot be executed due to incorrect params", NAVI21,
             "miopen-db-unusable"),
            ("Unable to open /dev/kfd read-write: Permission denied", NOTHING, "kfd-permission"),
            ("Unable to open /dev/kfd read-write: Operation not permitted", NOTHING,
             "kernel-driver-mismatch"),
            ("Unable to open /dev/kfd read-write: No such file or directory", NOTHING, "kfd-missing"),
            ("Unable to open /dev/kfd read-write: Cannot allocate memory", NOTHING, "gpu-unsupported-by-kfd"),
            ("ROCk module is NOT loaded, possibly no GPU devices", Facts(os="Ubuntu 22.04 on WSL2"),
             "unsupported-platform"),
            ("Segmentation fault (core dumped)", NAVI10, "arch-not-in-wheel"),
            ("Segmentation fault (core dumped)", AS_GFX1030, "override-isa-mismatch"),
            (NO_HEADER, NOTHING, "jit-missing-host-headers"),
            (NO_COMPILER, NOTHING, "jit-compiler-missing"),
            (NO_COMPILER.split("\n", maxsplit=1)[0], NAVI10, "jit-compiler-missing"),
            ("/bin/sh: 1: hipcc: not found\nninja: build stopped: subcommand failed.", NOTHING,
             "source-build-failure"),
            (f"{MATH_H}\n{FAILED_COMMAND}", NAVI10, "jit-header-conflict"),
            (MATH_H.replace("math.h", "cstdlib") + f"\n{FAILED_COMMAND}", NAVI10, "jit-missing-host-headers"),
            (f"{MATH_H}\n{FAILED_COMMAND.replace('/usr/include ', '/usr/include/hip ')}", NAVI10,
             "jit-missing-host-headers"),
            (NO_SOURCE, NAVI10, "miopen-kernel-source-missing"),
            (f"{NO_SOURCE}\nRuntimeError: miopenStatusUnknownError", NAVI10, "miopen-kernel-source-missing"),
            (NO_TARGET, NOTHING, "miopen-kernel-compile-failure"),
            (f"{NO_TARGET}\n1 error generated when compiling for gfx1010.", NAVI10,
             "miopen-kernel-compile-failure"),
            (f"[7/90] Building CXX object\n{NO_TARGET}\nninja: build stopped.", NOTHING,
             "source-build-failure"),
            (f"{NO_LLVM}\nMIOpen Error: Code object build failed. Source: naive_conv.cpp", NAVI10,
             "llvm-library-clash"),
            ("main.cpp:14:10: fatal error: 'limits' file not found\nninja: build stopped.", NOTHING,
             "source-build-failure"),
        ],
    )  # fmt: skip
    def test_facts_and_neighbours_decide(self, text, facts, cause):
        assert best(text, facts) == cause

    def test_an_aperture_violation_without_an_override_is_not_blamed_on_one(self):
        assert best(APERTURE, MI100) != "override-isa-mismatch"


class TestDamagedDatabases:
    @every_row("facts", [NOTHING, NAVI10, AS_GFX1030, Facts(true_gfx="gfx1010", torch_targets="gfx1010")])
    @every_row("reason", DAMAGED)
    def test_the_reason_that_miopen_gives_is_the_answer(self, reason, facts):
        found = answer(f"{reason}\n{CONVOLUTION}", facts)
        first = found.causes[0]
        assert (first.cause, first.score >= 0.7) == ("miopen-db-unusable", True)
        assert found.summary.endswith("MIOpen cannot use its database files.")
        assert "mv ~/.config/miopen ~/.config/miopen.old; mv ~/.cache/miopen" in found.action
        assert "`rocmprobe exec -- python train.py` uses clean ones" in found.action

    @every_row(
        "text",
        [
            "RuntimeError: HIP error: device kernel image is invalid",
            "torch.AcceleratorError: CUDA error: device kernel image is invalid",
            f"{WORKSPACE}\nRuntimeError: HIP error: device kernel image is invalid",
        ],
    )
    def test_an_invalid_image_of_the_program_itself_is_not_in_a_database(self, text):
        found = answer(text, NAVI10).causes
        assert found[0].cause == "arch-not-in-wheel"
        assert "miopen-db-unusable" not in {each.cause for each in found}

    @every_row(
        "reason",
        [
            "Failed loading module: device kernel image is invalid",
            "BZ2_bzBuffToBuffDecompress failed: a data integrity error",
        ],
    )
    def test_the_reason_counts_however_it_is_quoted(self, reason):
        assert best(f"{reason}\nRuntimeError: miopenStatusUnknownError") == "miopen-db-unusable"

    def test_where_the_refused_kernel_came_from_decides(self):
        read = 'MIOpen(HIP): Info2 [LoadBinary] Sucessfully loaded binary for: "a.cpp.o"'
        absent = 'MIOpen(HIP): Info2 [LoadBinary] Unable to load binary for: "b.cpp.o"'
        saved = 'MIOpen(HIP): Info2 [SaveBinary] Saving binary for: "b.cpp.o"'
        refused = "MIOpen Error: hipoc_program.cpp:164: Failed loading module: device kernel image is invalid"
        of_cache = answer("\n".join((absent, saved, read, refused, absent))).causes
        assert (of_cache[0].cause, of_cache[0].score >= 0.8) == ("miopen-db-unusable", True)
        of_compiler = answer("\n".join((read, absent, saved, refused, read))).causes
        assert of_compiler[0].cause == "miopen-kernel-compile-failure"
        assert "miopen-db-unusable" not in {each.cause for each in of_compiler}

    @every_row(
        "text",
        [
            "fatal: BZ2_bzBuffToBuffDecompress failed: a data integrity error",
            "MIOpen Error: gemm.cpp:958: Not enough workspace for GemmFwdRest (1024 provided, 9216 required)",
        ],
    )
    def test_look_alikes_are_not_damaged_databases(self, text):
        assert best(text) != "miopen-db-unusable"


CONVOLUTION = """Traceback (most recent call last):
  File "/v/lib/python3.10/site-packages/torch/nn/modules/module.py", line 1194, in _call_impl
    return forward_call(*input, **kwargs)
  File "/v/lib/python3.10/site-packages/torch/nn/modules/conv.py", line 463, in forward
    return self._conv_forward(input, self.weight, self.bias)
RuntimeError: miopenStatusUnknownError"""
BATCH_NORM = """  File "/v/lib/python3.10/site-packages/torch/nn/functional.py", line 2450, in batch_norm
    return torch.batch_norm(
RuntimeError: miopenStatusUnknownError"""
LSTM = """  File "/v/lib/python3.10/site-packages/torch/nn/modules/rnn.py", line 776, in forward
    result = _VF.lstm(input, hx, self._flat_weights, self.bias, self.num_layers,
RuntimeError: miopenStatusUnknownError"""
TRANSPOSED = """  File "/v/lib/python3.10/site-packages/torch/nn/modules/conv.py", line 956, in forward
    return F.conv_transpose2d(
RuntimeError: miopenStatusUnknownError"""
OLD_STACK = Facts(gpu="Radeon RX 5600 XT", torch="1.13.1+rocm5.2", env={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"})
NEW_STACK = Facts(gpu="Radeon RX 5600 XT", torch="2.12.0+rocm10.1.0")


class TestTheAnswerIsAtTheLevelOfTheEvidence:
    """The error that this project is about: MIOpen speaks, and gives no reason."""

    @every_row("facts", [NOTHING, OLD_STACK, NEW_STACK])
    @every_row(
        ("text", "inside", "cure"),
        [
            (CONVOLUTION, "a convolution", "--bypass always"),
            (TRANSPOSED, "a transposed convolution", "--bypass always"),
            (BATCH_NORM, "a batch norm", 'batch_norm="pytorch"'),
            (LSTM, "a recurrent layer", 'rnn="pytorch"'),
        ],
    )
    def test_miopen_s_status_alone(self, text, inside, cure, facts):
        found = answer(text, facts)
        assert found.layer.name.startswith("miopen")
        assert cure in found.action
        if not found.sure:
            assert (found.layer.name, found.layer.score >= 0.9) == ("miopen", True)
            assert f"inside {inside}" in found.summary
            assert "the log does not show" in found.summary
            assert "MIOPEN_LOG_LEVEL" in found.decide

    @every_row(("text", "kernel"), [(BATCH_NORM, "batch norm"), (LSTM, "RNN")])
    def test_what_does_not_compile_for_the_chip_itself_is_named(self, text, kernel):
        first = answer(text, NEW_STACK).causes[0]
        assert (first.cause, first.score >= 0.7) == ("miopen-kernel-compile-failure", True)
        assert any(kernel in line and "gfx1010" in line for line in first.evidence)
        under_override = answer(text, OLD_STACK)
        assert under_override.causes[0].score < 0.7
        assert under_override.group.name == "override"

    def test_a_group_is_the_answer_where_its_causes_look_alike(self):
        found = answer(NO_FUNCTION)
        assert (found.group.name, found.group.score >= 0.7) == ("no-code", True)
        assert found.summary.startswith("Perhaps: A program or library has no code for this chip")

        # "Not known" stands above guesses that are less probable, and nowhere else.
        assert answer("epoch 1, loss 0.3").causes == ()
        assert answer("epoch 1, loss 0.3").layer is None
        for text in (CONVOLUTION, APERTURE, NO_FUNCTION, NO_SOLVER, "HIP error: unspecified launch failure"):
            names = [each.cause for each in answer(text).causes]
            assert "unknown" not in names[1:]
            assert "No" not in answer(text).summary.split()[:1]

        # Where the log is silent the facts are told.
        found = answer("loading", Facts(true_gfx="gfx1010", torch="2.9.1+rocm6.4"))
        assert "no official wheel of this version has code for the chip" in found.summary


class TestByStanders:
    @every_row("remark", [KDB, WORKSPACE, "/opt/amdgpu/share/libdrm/amdgpu.ids: No such file or directory"])
    def test_a_remark_alone_is_harmless(self, remark):
        assert best(remark) == "benign-warning"

    @every_row("remark", [KDB, WORKSPACE])
    @every_row("exit", [None, "none"])
    def test_a_log_that_stops_at_a_remark_is_not_called_a_success(self, remark, exit):
        found = answer(f"Requested to load AutoencoderKL\n{remark}", Facts(exit=exit))
        said = " ".join((found.summary, found.action, found.causes[0].advice))
        assert "Warnings that working programs also print" in found.summary
        assert "If the program failed or stopped here, the log does not contain the reason" in said
        assert not re.search("[Nn]othing (needs|is broken)|breaks nothing", said)

    @every_row("remark", [KDB, WORKSPACE])
    @every_row("exit", ["exception", "segv", "abort", "hang"])
    def test_a_remark_explains_no_program_that_failed(self, remark, exit):
        found = answer(f"Requested to load AutoencoderKL\n{remark}", Facts(exit=exit))
        assert "benign-warning" not in {each.cause for each in found.causes}

    @given(
        st.lists(st.sampled_from([KDB, WORKSPACE.replace("<GemmFwdRest>", "<Other>")]), max_size=4),
        st.sampled_from(
            ["torch.OutOfMemoryError: HIP out of memory. Tried to allocate 80 MiB", NO_FUNCTION, NO_HEADER,
             "rocBLAS error: Cannot read /x/rocblas/library/TensileLibrary.dat: No such file or directory"]
        ),
        st.booleans(),
    )  # fmt: skip
    def test_remarks_never_win_over_the_fatal_line(self, remarks, fatal, first):
        lines = [fatal, *remarks] if first else [*remarks, fatal]
        assert best("\n".join(lines), NAVI10) == best(fatal, NAVI10)

    def test_a_skipped_solver_s_compile_error_is_no_failure(self):
        text = (
            "<stdin>:1251:2: error: instruction not supported on this GPU\n"
            "MIOpen(HIP): Warning [FindConvBwdWeightsAlgorithm] Find Winograd WrW failed: Assembly error(1)"
        )
        assert best(text) == "benign-warning"
        assert best(f"{text}\nMIOpen Error: Code object build failed") == "miopen-kernel-compile-failure"


class TestWhatIsSaid:
    def test_nothing_is_said_of_what_is_not_known(self):
        # A loss of NaN says nothing about a chip that is not known.
        first = answer("Epoch 1, loss nan").causes[0]
        assert first.cause == "fp16-overflow"
        assert "this chip" not in " ".join(first.evidence)

        # An override is not excluded where no facts are known.
        text = "HSA_STATUS_ERROR_INVALID_ISA\nShaderName : naive_conv_fwd"
        assert "without an override" not in json.dumps(asdict(answer(text)))

        # An unknown cause is in the layer that reports the failure.
        first = answer(CONVOLUTION).causes[0]
        assert (first.cause, first.layer) == ("unknown", "miopen")

        # Nothing in the log is not enough evidence.
        found = answer("epoch 1 of 300, loss 0.31")
        assert not found.causes
        assert found.summary.startswith("Not enough evidence")

    def test_scores_evidence_and_advice(self):
        # Scores are shares and sorted.
        found = answer(NO_SOLVER, AS_GFX1030).causes
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        assert 0 < sum(each.score for each in found) <= 1.001

        # Evidence names the line and what it says.
        first = answer(f"{KDB}\n{NO_SOLVER}", NAVI10).causes[0]
        assert first.evidence[0].startswith("line 2: MIOpen Error")

        # What speaks against is told.
        found = answer(NO_FUNCTION, NAVI21).causes
        assert any(
            "official wheels of this version have code" in each for cause in found for each in cause.against
        )

        # Two close causes come with what would decide.
        found = answer("RuntimeError: miopenStatusUnknownError", NAVI21)
        assert found.causes[0].score < 0.9
        assert found.decide

        # Every cause named has advice and a way to verify.
        for cause in answer(APERTURE, AS_GFX1030).causes:
            assert cause.advice
            assert cause.verify


class TestWhatIsInstalledSettles:
    HELD = Facts(true_gfx="gfx1010", torch="2.6.0", torch_targets="gfx1010")

    def test_whether_torch_holds_the_chip(self):
        # A torch that holds the chip lacks no code for it.
        found = answer(f"Segmentation fault\nlibamdhip64.so.6\n{NO_FUNCTION}", self.HELD)
        assert "arch-not-in-wheel" not in {each.cause for each in found.causes}
        assert found.causes[0].cause == "arch-not-in-rocm-lib"
        assert "Not arch-not-in-wheel: the installed PyTorch has code for the chip" in found.note

        # One that lacks it is at fault.
        facts = Facts(true_gfx="gfx1030", torch="2.6.0", torch_targets="gfx900,gfx1010")
        assert best(NO_FUNCTION, facts) == "arch-not-in-wheel"
        assert best("Segmentation fault", facts) == "arch-not-in-wheel"

        # An override that hides the code is to be taken away.
        env = {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}
        facts = Facts(true_gfx="gfx1010", torch="2.6.0", torch_targets="gfx1010", env=env)
        first = answer(NO_FUNCTION, facts).causes[0]
        assert first.advice.startswith("Run `unset HSA_OVERRIDE_GFX_VERSION`")
        without = answer(NO_FUNCTION, Facts(true_gfx="gfx1010", torch="2.6.0", env=env)).causes[0]
        assert not without.advice.startswith("Run `unset")


class TestACureFitsItsCause:
    def first(self, text: str) -> str:
        return answer(text, NAVI10).causes[0].advice

    def test_compilers_folders_and_sources(self):
        # A missing compiler is put where it is looked for.
        assert "ln -s" in self.first(NO_COMPILER)
        assert "row_bcast" not in self.first(NO_COMPILER)

        # A folder in the wrong order is taken out.
        advice = self.first(f"{MATH_H}\n{FAILED_COMMAND}")
        assert "CCC_OVERRIDE_OPTIONS='# x-isystem x/usr/include'" in advice
        assert "apt install" not in advice

        # A source that the package lacks is not cured by another switch.
        assert "MIOPEN_DEBUG_GCN_ASM_KERNELS=0 did not help" in self.first(NO_SOURCE)


class TestTheTables:
    def test_words_causes_and_layers_are_of_the_vocabulary(self):
        # Words are known.
        names = {row.name for row in signatures()}
        assert len(names) == len(signatures())
        words = names | set(KINDS) | KNOWN_WORDS
        assert SITUATIONS <= KNOWN_WORDS
        for rule in rules():
            assert {re.sub("^not-", "", word) for word in rule.when} <= words, rule

        # Causes and layers are of the vocabulary.
        vocabulary = {row.name for row in causes()}
        for row in (*signatures(), *rules()):
            assert set(row.points) <= vocabulary, row
            assert row.says and row.source, row  # noqa: PT018
        for signature in signatures():
            assert signature.kind in KINDS
            assert signature.layer in {None, *(row.name for row in layers())}
            assert (signature.kind != "remark") or not signature.points

        # Every cause that a log can tell has a signature or a rule.
        told = {
            cause for row in (*signatures(), *rules()) for cause, points in row.points.items() if points > 0
        }
        # Told by comparing kernels, firmware or whole runs, or by the order of GPUs; and what is no cause.
        assert {row.name for row in causes()} - told <= {"unknown"}


@pytest.fixture(scope="module")
def printed():
    done = score(str(CORPUS))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not CORPUS.is_file(), reason="the corpus of labelled reports is not there")
class TestTheCorpus:
    @every_row(("tier", "least"), [("decisive", 95), ("needs-facts", 85)])
    def test_the_right_cause_is_named_first(self, printed, tier, least):
        row = next(line for line in printed.splitlines() if line.startswith(f"| {tier} "))
        first, _ = (float(share) for share in re.findall(r"\(([0-9.]+) %\)", row))
        assert first >= least

    def test_no_benign_warning_is_called_a_failure_and_what_is_likely_is_right(self, printed):
        # No benign warning is called a failure.
        assert "Benign warnings called a failure: 0 of" in printed
        # Of all records, also those whose log cannot tell: 0.9 and more in 95 %, 0.7 and more in 80 %.
        rows = {line.split()[1]: line for line in printed.splitlines() if re.match(r"\| 0\.[79] to", line)}
        right, total = 0, 0
        for low, least in (("0.9", 95), ("0.7", 80)):
            of_all = re.findall(r"(\d+) of +(\d+)", rows[low])[-1]
            right, total = right + int(of_all[0]), total + int(of_all[1])
            assert 100 * right >= least * total

    def test_a_fit_names_a_calibration(self):
        done = score("--fit", str(CORPUS))
        found = dict(line.split(" = ") for line in done.stdout.splitlines())
        assert set(found) == {"sharpness", "unknown"}
        assert all(float(value) > 0 for value in found.values())


def test_a_damaged_corpus_is_one_clear_line(tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"log": "x"}\n')
    done = score(str(tmp_path / "corpus.jsonl"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "line 1" in done.stderr


def test_a_label_outside_of_the_vocabulary_is_scored_as_wrong(tmp_path):
    row = {"id": "a", "log": NO_SOLVER, "cause": "other:no-such-cause", "log_quality": "decisive"}
    (tmp_path / "corpus.jsonl").write_text(json.dumps(row))
    done = score(str(tmp_path / "corpus.jsonl"))
    assert done.returncode == 0, done.stderr
    assert "| other:no-such-cause | miopen-no-solver | a " in done.stdout


def wide_gaps(tree: Any) -> int:
    """The most gaps that one way through a pattern has: repeats of nearly any character, more than a few."""
    most = 0
    for kind, value in tree:
        if str(kind) == "BRANCH":
            most += max(wide_gaps(branch) for branch in value[1])
        elif str(kind) in ("MAX_REPEAT", "MIN_REPEAT"):
            inner = value[2]
            anything = any(str(each[0]) in ("ANY", "NOT_LITERAL") or "NEGATE" in str(each) for each in inner)
            most += (anything and value[1] > 60) + wide_gaps(inner)
        elif str(kind) == "SUBPATTERN":
            most += wide_gaps(value[3])
    return most


@every_row("row", signatures())
def test_a_pattern_is_quick_on_a_line_full_of_its_own_words(row):
    assert ".*" not in row.pattern.replace("\\.", "")
    assert wide_gaps(sre_parse.parse(row.pattern)) <= 2
