"""A log of a failed build: which line is its first error, whose build it is, and what to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import every_row

from rocmprobe.explain.builds import first_error
from rocmprobe.explain.explain import Explanation, explain
from rocmprobe.explain.log_facts import facts_in
from rocmprobe.text.log import of_text

CMAKE = """-- Found HIP: /opt/rocm
CMake Error at CMakeLists.txt:20 (find_package):
  By not providing "FindAMDDeviceLibs.cmake" in CMAKE_MODULE_PATH this
  project has asked CMake to find a package configuration file provided by
  "AMDDeviceLibs", but CMake did not find one.
CMake Error: Configuring incomplete, errors occurred!
"""


def answer(text: str) -> Explanation:
    log = of_text(text)
    return explain(log, facts_in(log))


@every_row(
    ("text", "line", "remedy"),
    [
        ("[1/9] ok\nx/a.hip:3:10: fatal error: 'hip/hip_runtime.h' file not found\nninja: build stopped", 2,
         "The header hip/hip_runtime.h is missing"),
        ("a.cpp:3:10: fatal error: rocblas.h: No such file or directory", 1, "header rocblas.h is missing"),
        ("C:\\p\\a.cpp(4): fatal error C1083: Cannot open include file: 'hip/hip.h': No such file", 1,
         "The header hip/hip.h is missing"),
        ("/usr/bin/ld: main.o: undefined reference to `hipMalloc'\ncollect2: error: ld returned 1", 1,
         "The linker does not find this function"),
        ("/usr/bin/ld: cannot find -lrocblas: No such file or directory", 1, "does not find librocblas.so"),
        ("ld.lld: error: unable to find library -lamdhip64", 1, "does not find libamdhip64.so"),
        ("c++: error: unrecognized command line option '-amdgpu-target=gfx803'", 1, "another compiler"),
        ("k_hip.h:3:4: error: no member named 'shfl' in 'x'", 1, "for another release"),
        (" #0 0x0000563051 PrintStackTraceSignalHandler(void*) S.cpp:0:0", 1, "compiler itself crashed"),
        (f"{CMAKE}", 2, "CMake does not find AMDDeviceLibs"),
        ("make: *** No rule to make target 'package'.  Stop.", 1, ""),
    ],
)  # fmt: skip
def test_the_first_error_of_a_build(text, line, remedy):
    error = first_error(of_text(text).lines)
    assert error is not None
    assert error.line == line
    assert remedy in error.remedy


@pytest.mark.parametrize(
    "text",
    [
        "MIOpen(HIP): Error [Do] 'x'\n/tmp/comgr-1/include/a.hpp:1:2: fatal error: 'limits' file not found",
        "/tmp/torchinductor_me/x.cpp:2:10: fatal error: 'Python.h' file not found",
        "RuntimeError: HIP error: invalid device function",
        "",
    ],
)
def test_what_is_compiled_while_a_program_runs_is_no_build(text):
    assert first_error(of_text(text).lines) is None


@pytest.mark.parametrize(
    "text",
    [
        "2>D:\\sdk\\render.h(62,75): error C2065: 'location': undeclared identifier",
        "  CC [M]  drivers/misc/x.o\ndrivers/misc/x.c:787:8: error: couldn't allocate input reg\n"
        "make[2]: *** [scripts/Makefile.build:287: drivers/misc/x.o] Error 1",
        "error[E0432]: unresolved import `crate::x`",
    ],
)
def test_a_build_without_a_word_of_amd_is_not_a_failure_of_its_stack(text):
    explained = answer(text)
    assert explained.causes[0].cause == "outside"
    assert "the first error is in line" in explained.summary


@pytest.mark.parametrize(
    "text",
    [
        "lib/a.cpp:3:4: error: use of undeclared identifier 'x'\nclang -c a.cpp --offload-arch=gfx1010",
        "error: Illegal instruction detected: Invalid dpp_ctrl value: not supported on GFX10+",
        "make: *** No rule to make target 'package'.  Stop.",
        CMAKE,
    ],
)
def test_a_build_for_amd_or_of_unknown_purpose_is_a_build_that_failed(text):
    assert answer(text).causes[0].cause == "source-build-failure"


def test_the_advice_for_a_build_is_about_its_first_error():
    assert "CMake does not find AMDDeviceLibs" in answer(CMAKE).action


@given(st.text(max_size=200))
def test_any_text_is_read(text):
    error = first_error(of_text(text).lines)
    assert error is None or 1 <= error.line <= len(text) + 1


@pytest.mark.parametrize(
    "text",
    [
        "10:39 WARNING: The GPU was not detected, nothing to be concerned about. no index\nSystem: x",
        "Error in cpuinfo: no sysfs (this is harmless)\n",
    ],
)
def test_a_message_that_calls_itself_harmless_is_no_failure(text):
    assert answer(text).causes[0].cause == "benign-warning"


def test_a_harmless_message_before_a_failure_excuses_nothing():
    text = "no sysfs, can be ignored\nRuntimeError: No HIP GPUs are available"
    assert answer(text).causes[0].cause != "benign-warning"


def test_an_assertion_of_the_kernel_driver_speaks_for_the_driver():
    line = "WARNING: CPU: 3 PID: 13 at drivers/gpu/drm/ttm/ttm_bo.c:517 ttm_bo_release+0x2bf/0x310 [ttm]"
    explained = answer(f"[ 12.1] ------------[ cut here ]------------\n[ 12.1] {line}\n")
    assert explained.layer is not None
    assert explained.layer.name == "driver"
    assert explained.causes[0].cause == "kernel-driver-regression"
