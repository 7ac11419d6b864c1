"""The kernels compiled by the real hiprtc of ROCm 5.2 (Debian's libamdhip64-5), which needs no GPU, and the
code that is kept."""

from __future__ import annotations

import ctypes
import os

import pytest

from rocmprobe.kernels import code_object, compilation, probe
from rocmprobe.kernels.sources import source_text
from rocmprobe.kernels.unavailable import KernelsUnavailable
from rocmprobe.runtimes.calls import LoadFailed
from rocmprobe.runtimes.rtc import Rtc

#: This hiprtc does not know gfx1100: asked for it, it ends the process.
TARGETS = {
    "gfx1010:xnack-": 0x233,
    "gfx1012:xnack-": 0x235,
    "gfx1030": 0x36,
    "gfx906:sramecc+:xnack-": 0xE2F,
}
PROBE = source_text("float32", (probe,))


@pytest.fixture(scope="module")
def hiprtc():
    try:
        return Rtc("libamdhip64.so.5")
    except LoadFailed:
        pytest.skip("no hiprtc of ROCm 5.2 (Debian's libamdhip64-5)")


def compiled(hiprtc, target, folder=None, source=PROBE, compiler="hiprtc of ROCm 5.2"):
    return compilation.compile_cached(hiprtc, compiler, target, source, folder)


def isa_by_comgr(code):
    """What comgr takes for the ISA of a code object (amd_comgr.h: data of kind 8 are executables)."""
    try:
        comgr = ctypes.CDLL("libamd_comgr.so.2")
    except OSError:
        pytest.skip("no comgr (Debian's libamd-comgr2)")
    data, size = ctypes.c_uint64(), ctypes.c_size_t()
    assert comgr.amd_comgr_create_data(8, ctypes.byref(data)) == 0
    assert comgr.amd_comgr_set_data(data, ctypes.c_size_t(len(code)), code) == 0
    assert comgr.amd_comgr_get_data_isa_name(data, ctypes.byref(size), None) == 0
    name = ctypes.create_string_buffer(size.value)
    assert comgr.amd_comgr_get_data_isa_name(data, ctypes.byref(size), name) == 0
    comgr.amd_comgr_release_data(data)
    return name.value.decode()


@pytest.mark.parametrize("target", TARGETS)
def test_the_probe_compiles_and_its_metadata_are_read(hiprtc, target):
    done = compiled(hiprtc, target)
    assert (done.log, done.kept) == ("", False)
    assert code_object.elf_flags(done.code) == TARGETS[target]
    assert code_object.metadata(done.code)["amdhsa.target"] == f"amdgcn-amd-amdhsa--{target}"
    kernel = code_object.kernels(done.code)["write_indices"]
    # Without hidden arguments nothing but the structure.
    assert kernel.arguments == ctypes.sizeof(probe.ProbeArguments)
    assert 0 < kernel.vgprs < 16
    assert 0 < kernel.sgprs < 32
    assert (kernel.lds, kernel.scratch, kernel.refusal) == (0, 0, "")


@pytest.mark.parametrize("target", ["gfx1010:xnack-", "gfx1012:xnack-"])
def test_code_with_the_isa_of_the_override_is_taken_for_it_and_differs_in_nothing_else(hiprtc, target):
    code = compiled(hiprtc, target).code
    patched = code_object.with_isa(code, "gfx1030")
    assert isa_by_comgr(code) == f"amdgcn-amd-amdhsa--{target}"
    assert isa_by_comgr(patched) == "amdgcn-amd-amdhsa--gfx1030"
    assert [at for at, pair in enumerate(zip(code, patched)) if len(set(pair)) > 1] == [48, 49]
    assert code_object.kernels(patched) == code_object.kernels(code)


def test_a_source_that_does_not_compile_leaves_its_log_and_no_file(hiprtc, tmp_path):
    with pytest.raises(KernelsUnavailable, match=r"hiprtc of ROCm 5\.2 does not compile the kernels") as why:
        compiled(hiprtc, "gfx1030", tmp_path, "int x = nothing;")
    assert "undeclared identifier 'nothing'" in why.value.log
    assert not list(tmp_path.iterdir())


def test_code_is_kept_by_source_target_and_compiler(hiprtc, tmp_path):
    first = compiled(hiprtc, "gfx1030", tmp_path)
    again = compiled(hiprtc, "gfx1030", tmp_path)
    assert (first.kept, again.kept, again.code) == (False, True, first.code)
    assert not compiled(hiprtc, "gfx1010:xnack-", tmp_path).kept
    assert not compiled(hiprtc, "gfx1030", tmp_path, PROBE + "\n").kept
    assert not compiled(hiprtc, "gfx1030", tmp_path, compiler="hiprtc of ROCm 6").kept
    assert len(list(tmp_path.iterdir())) == 4


def test_a_file_that_was_torn_is_compiled_anew(hiprtc, tmp_path):
    code = compiled(hiprtc, "gfx1030", tmp_path).code
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for torn in (whole[:-1], b"", whole + b"x"):
        path.write_bytes(torn)
        again = compiled(hiprtc, "gfx1030", tmp_path)
        assert (again.kept, again.code) == (False, code)
        assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_no_failure(hiprtc, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    assert not compiled(hiprtc, "gfx1030", file / "below").kept


def test_the_folder_of_the_cache(tmp_path, monkeypatch):
    assert compilation.cache_folder({"ROCMPROBE_BYPASS_KERNEL_CACHE": "0"}) is None
    monkeypatch.chdir(tmp_path)
    given = {"ROCMPROBE_BYPASS_KERNEL_CACHE": "here", "XDG_CACHE_HOME": "/x"}
    assert compilation.cache_folder(given) == tmp_path / "here"
    assert str(compilation.cache_folder({"XDG_CACHE_HOME": "/x"})) == "/x/rocmprobe/kernels"
    monkeypatch.setenv("HOME", "/h")
    assert str(compilation.cache_folder(os.environ)) == "/h/.cache/rocmprobe/kernels"
    monkeypatch.setenv("HOME", "nowhere")
    assert compilation.cache_folder({}) is None


def test_the_options_change_no_results():
    assert "-mcumode" in compilation.options("gfx1010:xnack-")
    assert "-mcumode" not in compilation.options("gfx906")
    assert not [option for option in compilation.options("gfx1010:xnack-") if "fast" in option]
