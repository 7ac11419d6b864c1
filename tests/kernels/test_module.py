"""The whole way of a kernel, from the libraries that a process has loaded to numbers in memory, in processes
whose HIP runtime is a stand-in that compiles with g++ and runs on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from runs import CHECKOUT
from stand_in_libraries import gpu_environment, hip_with_modules, kfd_nodes

_START = """
import ctypes
from rocmprobe.kernels import probe
from rocmprobe.kernels.module import KernelDevice, Module
from rocmprobe.kernels.sources import source_text
from rocmprobe.kernels.unavailable import KernelsUnavailable

SOURCE = source_text("float32", (probe,))
target = (ctypes.c_int32 * 100)()
addresses = {"workspace": ctypes.addressof(target)}

def refused(function, *arguments):
    try:
        function(*arguments)
    except KernelsUnavailable as why:
        return why.reason, why.log
    raise SystemExit("not refused")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return hip_with_modules(tmp_path_factory.mktemp("hip"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def python(library, cache, tmp_path):
    def run(code: str, isa: str = "gfx1010:xnack-", silicon: tuple[int, ...] = (100100,), **variables: str):
        nodes = kfd_nodes(tmp_path / "nodes", *silicon)
        environment = {
            **os.environ,
            **gpu_environment(library, nodes, isa),
            "ROCMPROBE_BYPASS_KERNEL_CACHE": str(cache),
            "PYTHONPATH": str(CHECKOUT),
            **variables,
        }
        done = subprocess.run(
            [sys.executable, "-c", _START + textwrap.dedent(code)],
            capture_output=True, text=True, env=environment, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize(
    ("isa", "patched"), [("gfx1010:xnack-", "False"), ("gfx1030", "True"), ("gfx1010", "False")]
)
def test_a_kernel_is_compiled_loaded_and_launched(python, isa, patched):
    lines = python(
        """
        device = KernelDevice(0)
        print(device.target.compiled, device.target.patched)
        module = Module(device, "float32", source=SOURCE)
        module.launch([probe.launch(70, 5), probe.launch(3, 40)], addresses)
        print(list(target[:5]), target[69], target[70])
        module.unload()
        """,
        isa,
    )
    assert lines == [f"gfx1010:xnack- {patched}", "[40, 41, 42, 8, 9] 74 0"]


def test_a_launch_is_on_the_device_and_stream_that_are_asked_for_and_leaves_the_device_as_it_was(
    python, tmp_path
):
    noted = tmp_path / "launches"
    lines = python(
        """
        device = KernelDevice(1)
        module = Module(device, "float32", source=SOURCE)
        module.launch([probe.launch(65)], addresses, 0)
        import ctypes
        module.launch([probe.launch(1)], addresses, 4096)
        current = ctypes.c_int(9)
        device.runtime.library.symbol("hipGetDevice")(ctypes.byref(current))
        print(device.target.native, current.value)
        """,
        "gfx1012:xnack-",
        (100100, 100102),
        LC_STAND_IN_DEVICES="2",
        LC_STAND_IN_LAUNCHES=str(noted),
    )
    assert lines == ["gfx1012 0"]
    assert noted.read_text() == "write_indices 2,1,1 64 1 0\nwrite_indices 1,1,1 64 1 4096\n"


def test_code_is_compiled_once(python, tmp_path):
    code = 'print(Module(KernelDevice(0), "float16", source=SOURCE).compiled.kept)'
    folder = str(tmp_path / "made" / "anew")
    assert python(code, ROCMPROBE_BYPASS_KERNEL_CACHE=folder) == ["False"]
    (tmp_path / "nodes").rename(tmp_path / "before")
    # Under the override it is the same code.
    assert python(code, "gfx1030", ROCMPROBE_BYPASS_KERNEL_CACHE=folder) == ["True"]


def test_a_call_that_fails_is_the_reason_and_leaves_no_error_behind(python):
    faults = {
        "hipModuleLoadData=status:209": "do not load on gfx1010, reported as gfx1010: hipModuleLoadData: ",
        "hipModuleGetFunction=status:500": "hipModuleGetFunction: hipErrorNotFound (500)",
        "hipModuleLaunchKernel=status:719": "hipModuleLaunchKernel: hipErrorLaunchFailure (719)",
        "hiprtcCreateProgram=status:3": "hiprtcCreateProgram: ",
        "hiprtcVersion=status:3": "hiprtcVersion: ",
        "hipGetDevicePropertiesR0600=status:1": "hipGetDevicePropertiesR0600: hipErrorInvalidValue (1)",
        "hipRuntimeGetVersion=status:1": "hipRuntimeGetVersion: hipErrorInvalidValue (1)",
    }
    lines = python(
        f"""
        import os
        for fault in {list(faults)}:
            def all():
                folder = None if "Create" in fault else ""
                Module(KernelDevice(0), "float32", folder, SOURCE).launch([probe.launch(1)], addresses)
            os.environ["LC_STAND_IN_FAULTS"] = fault
            print(refused(all)[0])
            print(ctypes.CDLL(None).hipGetLastError())
        """
    )
    for reason, line in zip(faults.values(), lines[::2]):
        assert reason in line
    assert lines[1::2] == ["0"] * len(faults)


def test_a_source_that_does_not_compile_is_refused_with_the_log(python):
    lines = python(
        """
        reason, log = refused(Module, KernelDevice(0), "float32", None, "KERNEL(wrong")
        print(reason)
        print(log)
        """
    )
    assert lines[0] == "hiprtc 9.0 of HIP 60443484 does not compile the kernels for gfx1010:xnack-"
    assert any("error:" in line for line in lines[1:])


def test_a_kernel_that_spills_is_refused_by_name(python):
    lines = python(
        """
        module = Module(KernelDevice(0), "float32", None, SOURCE)
        print(sorted(module.usable))
        print(refused(module.launch, [probe.launch(1)], addresses)[0])
        """,
        LC_STAND_IN_SPILLS="write_indices",
    )
    expected = (
        "write_indices uses memory instead of registers: "
        "7 vector and 0 scalar registers spilled, 28 bytes of scratch"
    )
    assert lines == ["[]", expected]


def test_a_kernel_that_did_not_pass_cannot_be_chosen_or_launched(python):
    lines = python(
        """
        from rocmprobe import kernels
        from rocmprobe.geometry import geometry
        one = dict(stride=(1, 1), padding=(0, 0), dilation=(1, 1))
        module = Module(KernelDevice(0), "float32", passed=["grouped_gather_1x4"])
        depthwise = geometry((1, 4, 9, 9), (4, 1, 3, 3), groups=4, **one)
        grouped = geometry((1, 8, 9, 9), (8, 4, 3, 3), groups=2, **one)
        for plain in (depthwise, grouped):
            print([each.kernels for each in kernels.options(module, "kernel-grouped", "fwd", plain, 1 << 20)])
        print(refused(module.launch, [probe.launch(1)], addresses)[0])
        """
    )
    assert lines == ["[frozenset({'grouped_gather_1x4'})]", "[]", "write_indices did not pass the self-test"]


@pytest.mark.parametrize(
    ("isa", "silicon", "reason"),
    [
        ("gfx1030", (100301,), "this GPU is gfx1031, but HIP reports gfx1030"),
        ("gfx1100", (100100,), "this GPU is gfx1010, but HIP reports gfx1100"),
        ("gfx1030", (), "lists no GPU (WSL"),
    ],
)
def test_silicon_that_is_not_known_to_take_the_code_is_refused(python, isa, silicon, reason):
    assert reason in python("print(refused(KernelDevice, 0)[0])", isa, silicon)[0]


def test_without_a_runtime_the_reason_says_so(python):
    assert python("print(refused(KernelDevice, 0)[0])", LD_PRELOAD="") == [
        "the GPU runtime: this process has not loaded libamdhip64"
    ]


def test_two_copies_of_the_runtime_are_refused(python, library, tmp_path):
    second = tmp_path / "libamdhip64.so"
    second.write_bytes(Path(library).read_bytes().replace(b"libamdhip64.so.6\0", b"libamdhip64.so.7\0"))
    code = f"ctypes.CDLL({str(second)!r}); print(refused(KernelDevice, 0)[0])"
    assert "this process has 2 copies of libamdhip64" in python(code)[0]


def test_launches_and_buffers(python):
    lines = python(
        """
        device = KernelDevice(0)
        module = Module(device, "float32", source=SOURCE)
        with device.current():
            module.launch([probe.launch(70, 5)], addresses, 4096)
            print(target[69])
        with device.current(), device.runtime.allocate(8, 64) as buffer:
            buffer.write(b"12345678")
            module.launch([probe.launch(1, 65)], {"workspace": buffer.address})
            print(buffer.read(), buffer.stray_writes())
        """
    )
    assert lines == ["74", r"b'A\x00\x00\x005678' 0"]
