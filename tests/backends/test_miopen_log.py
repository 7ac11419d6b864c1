"""Reading MIOpen's own log: what it chose, and what failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from rocmprobe.backends import Miopen
from rocmprobe.knowledge.miopen_log import (
    STATUSES,
    ChosenSolver,
    Status,
    family,
    had_no_solver,
    parse,
    reason_not_tested,
)  # fmt: skip

SHARED = Path(__file__).parents[3] / "shared"
RUNS = SHARED / "fixtures" / "miopen-runs"
CORPUS = SHARED / "corpus" / "train.jsonl"
needs_runs = pytest.mark.skipif(
    not RUNS.is_dir(), reason="recorded MIOpen runs are not part of the repository"
)
needs_corpus = pytest.mark.skipif(not CORPUS.is_file(), reason="the corpus is not part of the repository")

NAIVE, GEMM, OCL = "ConvDirectNaiveConvFwd", "GemmFwdRest", "ConvOclDirectFwd"
FIND, WORKSPACE = "miopenFindConvolutionForwardAlgorithm", "miopenConvolutionForwardGetWorkSpaceSize"
DESCRIPTOR, CREATE = "miopenCreateConvolutionDescriptor", "miopenCreate"

# Read by a person: solver, family, workspace, milliseconds, find-db.
CHOSEN = {
    "01-find-dynamic_hybrid-default.log": (NAIVE, "naive", 0, 8.00061, "miss"),
    "03-find-normal-ocl.log": (NAIVE, "naive", 0, 12.2547, "miss"),
    "04-imm-sol85.log": (NAIVE, "naive", 0, 12.2547, "hit"),
    "04-imm-sol91.log": (GEMM, "GEMM", 6912, 14.1398, "hit"),
    "05-hsa-override-10.3.0.log": (OCL, "Direct", 0, 3.33749, "miss"),
    "06-fft-5x5.log": (GEMM, "GEMM", 1254400, 1316.6, "miss"),
    "07-ctypes-driver.txt": (NAIVE, "naive", None, 9.907614, None),
    "08-tuning-search_db_update.log": (OCL, "Direct", 0, 6.61581, "miss"),
    "matrix/find-mode-NORMAL-colddb.log": (NAIVE, "naive", 0, 5.99202, "miss"),
    # NORMAL searches again although the database has a record.
    "matrix/find-mode-NORMAL-warmdb.log": (NAIVE, "naive", 0, 6.68458, "miss"),
    "matrix/find-mode-FAST-colddb.log": (GEMM, "GEMM", 6912, 27.7778, "miss"),
    # FAST stores nothing, so that its database is never warm.
    "matrix/find-mode-FAST-warmdb.log": (GEMM, "GEMM", 6912, 27.7778, "miss"),
    "matrix/find-mode-HYBRID-colddb.log": (NAIVE, "naive", 0, 6.26043, "miss"),
    "matrix/find-mode-HYBRID-warmdb.log": (NAIVE, "naive", 0, 6.26043, "hit"),
    "matrix/find-mode-DYNAMIC_HYBRID-colddb.log": (NAIVE, "naive", 0, 8.16483, "miss"),
    "matrix/find-mode-DYNAMIC_HYBRID-warmdb.log": (NAIVE, "naive", 0, 8.16483, "hit"),
    "matrix/find-mode-5-warmdb.log": (NAIVE, "naive", 0, 5.84647, "hit"),
    "matrix/find-mode-0-colddb.log": (NAIVE, "naive", 0, 6.07279, "miss"),
    "matrix/find-mode-99-warmdb.log": (NAIVE, "naive", 0, 6.2067, "hit"),
    "matrix/find-enforce-SEARCH.log": (NAIVE, "naive", 0, 6.73714, "miss"),
    "matrix/find-enforce-BOGUS.log": (NAIVE, "naive", 0, 6.48932, "miss"),
    "matrix/v-MIOPEN_DEBUG_CONV_DIRECT_0.log": (GEMM, "GEMM", 6912, 14.1592, "miss"),
    "matrix/v-MIOPEN_DEBUG_CONV_GEMM_0.log": (NAIVE, "naive", 0, 7.32639, "miss"),
    "matrix/v-MIOPEN_DEBUG_HIP_KERNELS_0.log": (GEMM, "GEMM", 6912, 14.804, "miss"),
    "matrix/v-MIOPEN_DEBUG_FIND_ONLY_SOLVER_GemmFwdRest.log": (GEMM, "GEMM", 6912, 13.7235, "miss"),
    "matrix/v-HSA_OVERRIDE_GFX_VERSION_10_3_0.log": (OCL, "Direct", 0, 3.39688, "miss"),
    "matrix/v-MIOPEN_ENABLE_LOGGING_CMD_1.log": (GEMM, "GEMM", 6912, 14.0698, "miss"),
    "matrix/v-MIOPEN_ENABLE_LOGGING_1.log": (NAIVE, "naive", 0, 9.58797, "miss"),
    "matrix/v-MIOPEN_LOG_LEVEL_5.log": (NAIVE, "naive", 0, 7.0027, "miss"),
    "matrix/v-AMD_LOG_LEVEL_3.log": (NAIVE, "naive", 0, 6.74774, "miss"),
}
# The call that failed, its status, what the first line of evidence ends with, the kernel file.
FAILED = {
    "02-find-normal-asm-ocl.log": (
        FIND, 7, "Failed to load kernel source: Conv_Winograd_v30_3_1_fp32_f3x2_stride1.s",
        "Conv_Winograd_v30_3_1_fp32_f3x2_stride1.s",
    ),
    "20-rocm7-nogpu-and-vadd.txt": (CREATE, 7, "No device: no ROCm-capable device is detected", None),
    "30-raw-debian-with-g++.log": (FIND, 7, "naive_conv.cpp.o'", "naive_conv.cpp"),
    "31-raw-debian-no-libstdc++-headers.log": (FIND, 7, "naive_conv.cpp.o'", "naive_conv.cpp"),
    "32-raw-debian-clang-broken.log": (FIND, 7, "naive_conv.cpp.o'", "naive_conv.cpp"),
    "nogpu.txt": (CREATE, 7, "No device", None),
    "matrix/find-mode-BOGUS-colddb.log": (DESCRIPTOR, 7, "stoul", None),
    "matrix/find-mode-TRUST_VERIFY-warmdb.log": (DESCRIPTOR, 7, "stoul", None),
    "matrix/v-HIP_VISIBLE_DEVICES_-1.log": (CREATE, 7, "No device", None),
    "matrix/v-MIOPEN_DEBUG_CONV_DIRECT_0_MIOPEN_DEBUG_CONV_GEMM_0.log": (
        FIND, 7, "No suitable algorithm was found to execute the required convolution", None,
    ),
    "matrix/v-MIOPEN_DEVICE_ARCH_gfx1030.log": (
        FIND, 7, "No suitable algorithm was found to execute the required convolution", None,
    ),
    "matrix/v-MIOPEN_DEBUG_FIND_ONLY_SOLVER_Bogus.log": (
        WORKSPACE, 3, "Invalid value of MIOPEN_DEBUG_FIND_ONLY_SOLVER: Bogus", None,
    ),
}  # fmt: skip
DRIVER = "-n 1 -c 3 -H 8 -W 8 -k 4 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1"
LEVELS = ("Info", "Info2", "Trace", "Warning", "Error", "Command")
#: Killed while its kernel stood still: nothing chosen, nothing returned. The others hold no convolution.
NEITHER = {
    "v-HSA_OVERRIDE_GFX_VERSION_11_0_0.log", "09-bnorm-override10.3.0.log", "INDEX.md",
    "debian-7.2.4-db-and-targets.txt", "rocminfo-gfx1010.txt", "smi-under-emulator.txt", "matrix-summary.txt",
}  # fmt: skip


def recorded(name: str):
    return parse((RUNS / name).read_text("utf-8", "replace"))


@needs_runs
class TestRecordedRuns:
    @pytest.mark.parametrize("name", CHOSEN)
    def test_the_choice(self, name):
        told = recorded(name)
        assert (told.choice, told.statuses) == (ChosenSolver(*CHOSEN[name]), ())

    @pytest.mark.parametrize("name", FAILED)
    def test_the_failure(self, name):
        call, status, text, source = FAILED[name]
        told = recorded(name)
        assert told.choice is None
        assert told.statuses == (Status(STATUSES[status], status, call),)
        assert next(line for line in told.failures if line.startswith("MIOpen Error: ")).endswith(text)
        assert told.sources == ((source,) if source else ())

    def test_what_the_compiler_said_stands_before_what_left_the_library(self):
        missing = "fatal error: 'math.h' file not found"
        assert recorded("30-raw-debian-with-g++.log").failures[0].endswith(missing)
        first, second, left = recorded("31-raw-debian-no-libstdc++-headers.log").failures
        assert left.startswith("MIOpen Error: ")
        assert "Could not find standard C++ header" in first
        assert second.endswith("fatal error: 'cstdlib' file not found")

    def test_a_solver_that_was_dropped_is_told_although_another_ran(self):
        told = recorded("01-find-dynamic_hybrid-default.log")
        assert told.sources == ("MIOpenIm2d2Col.cl",)
        assert [line.split()[0] for line in told.failures] == ["sh:", "MIOpen(HIP):"]

    def test_commands_for_the_driver(self):
        assert recorded("07-ctypes-driver.txt").commands[0] == f"MIOpenDriver conv {DRIVER} -i 2 -V 1"
        assert recorded("09-bnorm-override10.3.0.log").commands == (
            "MIOpenDriver bnorm -n 4 -c 8 -H 8 -W 8 -m 1 -F 1 -V 1 -i 1",
        )
        logged = recorded("matrix/v-MIOPEN_ENABLE_LOGGING_CMD_1.log")
        assert logged.commands == (f"MIOpenDriver conv {DRIVER}",)

    def test_every_run_tells_its_choice_or_its_failure(self):
        silent = set()
        for path in sorted(RUNS.rglob("*.*")):
            told = parse(path.read_text("utf-8", "replace"))
            assert not (told.choice and told.statuses), path.name
            if told.choice:
                assert told.choice.solver, path.name
                assert told.choice.algorithm, path.name
                assert told.choice.milliseconds, path.name
            elif not (told.statuses and told.failures):
                silent.add(path.name)
        assert silent == NEITHER

    def test_level_5_tells_the_same_save_where_nothing_was_searched(self):
        """Level 6 adds what the database held; FAST mode and immediate mode need that to be sure."""
        for path in sorted(RUNS.rglob("*.log")):
            text = path.read_text("utf-8", "replace")
            whole = parse(text).choice
            short = parse("\n".join(line for line in text.splitlines() if ": Info2 [" not in line)).choice
            if short and short.find_db is None:
                assert "-mode-2-" in path.name or "FAST" in path.name or "-imm-" in path.name, path.name
                assert short.solver == whole.solver, path.name
            else:
                assert short == whole, path.name

    def test_every_row_of_the_summary_that_failed_says_how(self):
        rows = (RUNS / "matrix-summary.txt").read_text("utf-8").splitlines()
        for row in rows:
            told = parse(row.rpartition(" | ")[2].replace(";", "\n"))
            if "rc=0 " in row:
                assert not told.statuses, row
            else:
                assert [status.number for status in told.statuses] == [7], row
                assert told.failures == ("MIOpen Error: stoul",), row

    def test_every_line_of_the_log_is_a_message(self):
        for path in sorted(RUNS.rglob("*.log")):
            text = path.read_text("utf-8", "replace")
            logged = [line for line in text.splitlines() if line.startswith("MIOpen(HIP): ") and "[" in line]
            # What MIOPEN_ENABLE_LOGGING adds are the calls with their arguments, which have no level.
            logged = [line for line in logged if line.split()[1] in LEVELS]
            told = [each.line for each in parse(text).messages if each.function is not None]
            assert told == [line.strip() for line in logged], path.name


@needs_corpus
def test_every_line_of_miopen_in_reports_is_read():
    for record in map(json.loads, CORPUS.read_text("utf-8").splitlines()):
        told = parse(record["log"] or "")
        messages = {message.line: message for message in told.messages}
        for line in map(str.strip, (record["log"] or "").splitlines()):
            place = record["id"], line
            head, _, rest = line.partition("): ")
            if "MIOpen(" in head and rest:
                level, _, rest = rest.partition(" [")
                function, _, text = rest.partition("] ")
                message = messages[line]
                assert (message.level, message.function) == (level, function.rstrip("]")), place
                assert text.strip().endswith(message.text.strip()), place
                assert message.backend == head.rpartition("MIOpen(")[2], place
            elif "MIOpen Error: " in line:
                assert line.endswith(messages[line].text), place
                assert (messages[line].level, messages[line].function) == ("Error", None), place
            elif "miopenStatus" in line:
                assert any(status.name in line for status in told.statuses), place
            elif "MIOpenDriver" in line:
                assert line in told.commands, place
            elif " error: " in line and "iopen" in line:
                assert line in told.failures, place
            elif "iopen" in line.lower() and "In file included from" not in line:
                assert line in messages or "MIOPEN_" in line, place


def line(text: str, function: str = "X", level: str = "Info") -> str:
    return f"MIOpen(HIP): {level} [{function}] {text}\n"


#: What Find 2.0 of 3.4 and 3.5 says at level 5: the fastest first.
LISTED = line("miopenConvolutionBwdWeightsAlgoGEMM\t8.5\t6912", "FindConvolution") + line(
    "miopenConvolutionBwdWeightsAlgoDirect\t12.25\t0", "FindConvolution"
)


class TestChoice:
    @pytest.mark.parametrize(
        ("log", "expected"),
        [
            (line("BWrW Chosen Algorithm: ConvWinograd3x3MultipassWrW<3-2> , 64, 1.5"),
             ChosenSolver("ConvWinograd3x3MultipassWrW<3-2>", "Winograd", 64, 1.5)),
            (line("solver_id = 91, workspace = 12", "ConvolutionForwardImmediate"),
             ChosenSolver("GemmFwdRest", "GEMM", 12)),
            (line("solver_id = 4711, workspace = 12"), ChosenSolver("4711", None, 12)),
            (line("solver_id = ConvAsm1x1U", "CompileSolution"), ChosenSolver("ConvAsm1x1U", "Direct")),
            (line("algo = 5, workspace = 12", "ConvolutionBackwardData"), ChosenSolver(None, "ImplicitGEMM")),
            (line("FW Chosen Algorithm: fft , 0, 1") + line("algo = 2, workspace = 0", "ConvolutionForward"),
             ChosenSolver("fft", "FFT", 0, 1.0)),
            (line("Found solution: fft , 10, 2.5") + line("Found solution: GemmFwdRest , 20, 1.5"),
             ChosenSolver("GemmFwdRest", "GEMM", 20, 1.5)),
            ("Found a solution: GemmFwdRest , 20, 1.5\n", None),
            (LISTED + line("GemmWrwUniversal (not searchable)", "FindSolutionImpl")
             + line("ConvDirectNaiveConvWrw (not searchable)", "FindSolutionImpl"),
             ChosenSolver("GemmWrwUniversal", "GEMM", 6912, 8.5)),
            (LISTED + line("Perf Db: record not found for: fft", "FindSolutionImpl"),
             ChosenSolver(None, "GEMM", 6912, 8.5)),
            (LISTED + line("FW Chosen Algorithm: fft , 10, 2.5")
             + line("GemmFwdRest (not searchable)", "FindSolutionImpl"),
             ChosenSolver("fft", "FFT", 10, 2.5)),
            (LISTED + "MIOpen Forward Conv. Algorithm: 1, Solution: 34/fft\n", ChosenSolver("fft", "FFT")),
            (line("FW Chosen Algorithm: fft , lots, soon"), ChosenSolver("fft", "FFT")),
            (line(f"FW Chosen Algorithm: fft , {'9' * 5000}, nonsense"), ChosenSolver("fft", "FFT")),
            (line("Selected: ConvDirectNaiveConvFwd: naive: 8.0, workspace_sz = 0"), None),
            ("", None),
        ],
    )  # fmt: skip
    def test_how_it_is_told(self, log, expected):
        assert parse(log).choice == expected

    @pytest.mark.parametrize(
        ("before", "find_db"),
        [
            (line("MIOPEN_FIND_MODE = DYNAMIC_HYBRID(5)"), "hit"),
            (line("MIOPEN_FIND_MODE = HYBRID(3)") + line("Find-db regenerating.", "TryLoad"), "miss"),
            (line("MIOPEN_FIND_MODE = FAST(2)"), None),
            (line("id: 34, algo: 2, time: 1.5, ws: 0, name: fft", "GetSolutions", "Info2"), "hit"),
            (line("id: 34, algo: 2, time: 1.5, ws: 0, name: fft", "GetForwardSolutions", "Info2"), "hit"),
            (line("Using WTI Fallback", "GetSolutionsFallback", "Info2"), "miss"),
            ("", None),
        ],
    )
    def test_the_find_database(self, before, find_db):
        assert parse(before + line("FW Chosen Algorithm: fft , 0, 1.5")).choice.find_db == find_db

    @pytest.mark.parametrize(
        ("before", "find_db"),
        [("", "hit"), (line("Find-db regenerating.", "TryLoad"), "miss")],
    )
    def test_the_find_database_of_find_2(self, before, find_db):
        one = before + LISTED + line("GemmWrwUniversal (not searchable)", "FindSolutionImpl")
        log = line("MIOPEN_FIND_MODE = DYNAMIC_HYBRID(5)") + one
        assert parse(log).choice.find_db == find_db
        chosen = line("FW Chosen Algorithm: fft , 0, 1.5")
        assert parse(log.replace(one, before + LISTED + chosen)).choice.find_db == find_db
        assert parse(log + LISTED + line("fft (not searchable)", "FindSolutionImpl")).choice == ChosenSolver(
            "fft", "FFT", 6912, 8.5, "hit"
        )

    def test_one_convolution_says_nothing_of_the_database_for_the_next(self):
        chosen = line("FW Chosen Algorithm: fft , 0, 1.5")
        log = line("MIOPEN_FIND_MODE = HYBRID(3)") + line("Find-db regenerating.") + chosen
        assert (parse(log).choice.find_db, parse(log + chosen).choice.find_db) == ("miss", "hit")

    @pytest.mark.parametrize(
        ("solver", "expected"),
        [
            ("ConvDirectNaiveConvWrw", "naive"), ("ConvOclBwdWrW2<4>", "Direct"), ("ConvAsm3x3U", "Direct"),
            ("ConvBinWinogradRxSf3x2", "Winograd"), ("ConvWinoFuryRxS<2-3>", "Winograd"),
            ("ConvMPBidirectWinograd_xdlops<2-3>", "Winograd"), ("GemmFwd1x1_0_1_int8", "GEMM"),
            ("ConvHipImplicitGemmV4R1Fwd", "ImplicitGEMM"), ("ConvMlirIgemmBwdXdlops", "ImplicitGEMM"),
            ("ConvAsmImplicitGemmGTCDynamicFwdXdlops", "ImplicitGEMM"), ("fft", "FFT"),
            ("BnFwdTraining", None),
        ],
    )  # fmt: skip
    def test_families(self, solver, expected):
        assert family(solver) == expected


class TestFailures:
    def test_the_most_telling_first_whatever_the_order_of_print(self):
        caught = line("/MIOpen/src/sqlite_db.cpp:212: disk I/O error", "FindFftSolutions", "Warning")
        said = "<inline asm>:14:20: error: not a valid operand.\n"
        logged = line(
            "HIPRTC status = HIPRTC_ERROR_COMPILATION (6), source file: bn.cpp", "BuildHip", "Error"
        )
        left = (
            "MIOpen Error: /MIOpen/src/hipoc/hipoc_program.cpp:300: Code object build failed. Source: bn.cl\n"
        )
        told = parse(caught + said + logged + left)
        assert told.failures == tuple(each.strip() for each in (said, left, logged, caught))
        assert told.sources == ("bn.cl", "bn.cpp")

    def test_where_no_kernel_is_to_blame_what_left_the_library_comes_first(self):
        said = "<stdin>:1251:2: error: instruction not supported on this GPU"
        left = "MIOpen Error: /MIOpen/src/ocl/convolutionocl.cpp:275: No suitable algorithm was found"
        assert parse(f"{said}\n{left}").failures == (left, said)

    def test_an_exception_in_a_compile_thread(self):
        log = (
            "terminate called after throwing an instance of 'miopen::Exception'\n"
            "  what():  /MIOpen/src/hipoc_program.cpp:300: Code object build failed. Source: naive_conv.cpp\n"
        )
        told = parse(log)
        assert told.sources == ("naive_conv.cpp",)
        assert [(each.level, each.place) for each in told.messages] == [
            ("Fatal", None), ("Error", "/MIOpen/src/hipoc_program.cpp:300"),
        ]  # fmt: skip

    def test_a_place_has_no_host(self):
        for host in ("", "alices-box:", "box.example.org:"):
            log = f"MIOpen Error: {host}src/hip/handlehip.cpp:157: No device: no ROCm-capable device\n"
            (message,) = parse(log).messages
            assert (message.place, message.text) == (
                "src/hip/handlehip.cpp:157", "No device: no ROCm-capable device",
            )  # fmt: skip

    @pytest.mark.parametrize(
        ("log", "sources"),
        [
            (line("Failed to get function: Im2Col from Im2d2Col.cl", level="Error"), ("Im2d2Col.cl",)),
            (line("'hiprtcCompileProgram(p)' naive.cpp: HIPRTC_ERROR_COMPILATION (6)", level="Error"),
             ("naive.cpp",)),
            (line("source file: naive.cpp", level="Info"), ()),
        ],
    )  # fmt: skip
    def test_the_kernel_file(self, log, sources):
        assert parse(log).sources == sources

    @pytest.mark.parametrize(
        ("text", "function"),
        [
            ("Path to assembler is not provided. Expect performance degradation.",
             "ValidateGcnAssemblerImpl"),
            ("Error parsing payload under the key: 3-8-8-3x3-4 form file \"/db/gfx1010_20.ufdb.txt\"",
             "FindRecordUnsafe"),
            ("Contents: ", "FindRecordUnsafe"),
        ],
    )  # fmt: skip
    def test_what_the_search_passes_over_is_no_failure(self, text, function):
        assert parse(line(text, function, "Error")).failures == ()

    def test_statuses(self):
        log = (
            "RuntimeError: miopenStatusInternalError\n[0.1] miopenFindSolutions(h,p) -> 6\n"
            "miopenCreate rc 0 b'miopenStatusSuccess'\nmiopenStatusOfTomorrow\nmiopenDestroy(h) -> 77\n"
            "RuntimeError: miopenStatusInternalError\n"
        )
        assert parse(log).statuses == (
            Status("miopenStatusInternalError", 5),
            Status("miopenStatusNotImplemented", 6, "miopenFindSolutions"),
            Status("miopenStatusOfTomorrow", None),
            Status("miopenStatus 77", 77, "miopenDestroy"),
        )

    def test_a_missing_database_is_no_failure(self):
        log = (
            line(
                "Missing system database file: gfx1030_20.kdb Performance may degrade.",
                "SQLiteBase",
                "Warning",
            )
            + line('File is unreadable: "/a folder/gfx1032_16.HIP.fdb.txt"', "ParseAndLoadDb", "Warning")
            + line('File is unreadable: "/home/user/gfx1010_20.ufdb.txt"', "Prefetch")
        )
        assert parse(log).failures == ()


def test_thread_and_time_in_front_and_other_output_around():
    log = " 30%|###   | 3/10 4711 MIOpen(OpenCL)   1.250: Warning [] text: [here]\r\nnot MIOpen(HIP) itself\n"
    (message,) = parse(log).messages
    assert (message.backend, message.level, message.function, message.text) == (
        "OpenCL", "Warning", "", "text: [here]",
    )  # fmt: skip


def test_the_backend_tells_what_the_log_tells():
    log = line("Find-db regenerating.") + line("FW Chosen Algorithm: GemmFwdRest , 6912, 8.0")
    told = Miopen().read(log + "MIOpen Error: a.cpp:1: why\n")
    assert (told.implementation, told.algorithm, told.workspace_bytes, told.find_db, told.errors) == (
        "GemmFwdRest", "GEMM", 6912, "miss", ("MIOpen Error: a.cpp:1: why",),
    )  # fmt: skip


#: Beginnings that a pattern of the parser waits for; each repeated must not make it scan again and again.
BEGINNINGS = (
    "MIOpen(", "MIOpen(HIP): Info [", "MIOpen(HIP)1", "MIOpen Error: ", "what(): miopen", "miopen/a.cpp:1",
    "Chosen Algorithm: ", "Chosen Algorithm: x ", "solver_id = ", "algo = ", "id: 1, algo: 1, time: ",
    "Found sol: ", "MIOpen Conv. Algorithm: ", "GPU Kernel Time ", "MIOPEN_FIND_MODE = ", "MIOpenDriver x -",
    "miopenCreate(", "miopenStatusA", ":1:1", "sh: 1: : ",
    "Failed cmd: x ", "source file: ", "' a", "Failed to get function: ", "Cant find file: a", ".cpp:1", " ",
    "miopenAlgoA ", "miopenAlgoAlgo", "terminate called miopen::", "Warning [", "9",
)  # fmt: skip
SAID = (
    line(""), line("", level="Error"), line("", "ConvolutionForward"), line("", "GetSolutions"),
    line("", "FindConvolution"),
    "MIOpen Error: \n",
)  # fmt: skip


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.sampled_from([*BEGINNINGS, *(each.strip("\n") for each in SAID), "\n", "] ", "9" * 30]) | st.text()
    )
)
def test_nothing_makes_it_raise(parts):
    parse("".join(parts))


@pytest.mark.parametrize("head", ["", pytest.param(SAID[0], marks=pytest.mark.thorough)])
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_megabyte_of_one_beginning_is_read(head, beginning):
    """What scanned it again from each beginning would take hours."""
    told = parse(head.strip("\n") + beginning * (1_000_000 // len(beginning)))
    assert len(told.messages) <= 1


class TestForced:
    """What a question says of the one solver that was forced."""

    @needs_runs
    @pytest.mark.parametrize(
        ("log", "solver", "state", "told"),
        [
            ("FIND_ONLY_SOLVER_Bogus", "Bogus", "error", "this MIOpen does not know Bogus"),
            ("FIND_ONLY_SOLVER_GemmFwdRest", GEMM, "pass", None),
            ("FIND_ONLY_SOLVER_GemmFwdRest", GEMM, "wrong", None),
            ("FIND_ONLY_SOLVER_GemmFwdRest", NAIVE, "pass", f"MIOpen ran {GEMM} in its place"),
            ("FIND_ONLY_SOLVER_ConvDirectNaiveConvFwd", NAIVE, "pass", None),
            ("CONV_DIRECT_0_MIOPEN_DEBUG_CONV_GEMM_0", "fft", "error", "fft does not apply to this problem"),
        ],
    )
    def test_in_recorded_runs(self, log, solver, state, told):
        text = (RUNS / "matrix" / f"v-MIOPEN_DEBUG_{log}.log").read_text("utf-8")
        assert reason_not_tested(solver, state, Miopen().read(text)) == told

    @pytest.mark.parametrize(
        "said",
        [
            "275: No suitable algorithm was found to execute the required convolution",
            "536: Requested convolution is not supported or Immediate mode Fallback unsuccessful.",
        ],
    )
    def test_what_find_and_immediate_mode_say_where_no_solver_is_left(self, said):
        told = Miopen().read(
            "MIOpen(HIP): Error [ValidateGcnAssemblerImpl] Path to assembler is not provided. Expect "
            f"performance degradation.\nMIOpen Error: src/ocl/convolutionocl.cpp:{said}\n"
        )
        assert had_no_solver("error", told)
        assert not had_no_solver("crash", told)
        assert not had_no_solver("error", Miopen().read(""))

    @pytest.mark.parametrize("state", ["error", "crash"])
    def test_a_kernel_that_does_not_compile_is_its_own_failure(self, state):
        text = (
            "MIOpen(HIP): Error [BuildHip] HIPRTC status = HIPRTC_ERROR_COMPILATION (6), source file: a.cpp\n"
            "MIOpen Error: /MIOpen/src/ocl/convolutionocl.cpp:276: No suitable algorithm was found to "
            "execute the required convolution\n"
        )
        assert reason_not_tested(GEMM, state, Miopen().read(text)) is None
        assert reason_not_tested(GEMM, state, Miopen().read("")) is None
