"""Which files of a runtime belong together, from what a process has mapped and what lies beside it."""

from __future__ import annotations

import pytest

from rocmprobe.runtimes import loaded


@pytest.fixture
def process(tmp_path):
    """A process that has mapped some of the files that are there."""

    def made(mapped, *beside):
        for name in (*mapped, *beside):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
        maps = tmp_path / "maps"
        maps.write_text("".join(f"7f00-7f01 r-xp 00000000 08:01 1 {tmp_path / name}\n" for name in mapped))
        return str(maps)

    return made


@pytest.mark.parametrize(
    ("mapped", "beside", "expected"),
    [
        # torch 1.13.1: the functions are in the runtime itself.
        (["torch/lib/libamdhip64.so"], ["torch/lib/libamd_comgr.so.2"], "torch/lib/libamdhip64.so"),
        (["torch/lib/libamdhip64.so"], ["torch/lib/libhiprtc.so"], "torch/lib/libhiprtc.so"),
        (
            ["_rocm_sdk_core/lib/libamdhip64.so.7.2.1"],
            ["_rocm_sdk_core/lib/libhiprtc.so.7", "_rocm_sdk_core/lib/libhiprtc-builtins.so.7"],
            "_rocm_sdk_core/lib/libhiprtc.so.7",
        ),
        # Of a distribution's folder the version of the runtime.
        (
            ["lib/libamdhip64.so.5.7.1"],
            ["lib/libhiprtc.so.6", "lib/libhiprtc.so.5.7"],
            "lib/libhiprtc.so.5.7",
        ),
        (["lib/libamdhip64.so.5.2"], ["lib/libhiprtc.so.6"], "lib/libamdhip64.so.5.2"),
        (["a/libamdhip64.so", "b/libhiprtc.so.6"], ["a/libhiprtc.so"], "b/libhiprtc.so.6"),
    ],
)
def test_the_hiprtc_of_the_runtime(process, tmp_path, mapped, beside, expected):
    assert loaded.hiprtc(process(mapped, *beside)) == str(tmp_path / expected)


def test_a_link_without_a_version_is_what_it_leads_to(process, tmp_path):
    maps = process(["lib/libamdhip64.so.5.7"], "lib/libhiprtc.so.6.4")
    (tmp_path / "lib" / "libhiprtc.so").symlink_to("libhiprtc.so.6.4")
    assert loaded.hiprtc(maps) == str(tmp_path / "lib" / "libamdhip64.so.5.7")


def test_a_runtime_that_is_not_there_or_there_twice(process):
    with pytest.raises(loaded.NotLoaded, match="this process has not loaded libamdhip64"):
        loaded.hip(process(["x/libMIOpen.so.1"]))
    with pytest.raises(loaded.NotLoaded, match="2 copies of libamdhip64: "):
        loaded.hip(process(["x/libamdhip64.so", "y/libamdhip64.so.6"]))


def test_a_library_that_is_not_in_the_process_is_not_loaded_by_asking(tmp_path):
    path = tmp_path / "libamdhip64.so"
    path.write_bytes(b"not a library")
    with pytest.raises(loaded.NotLoaded, match="was replaced after it was loaded"):
        loaded.require_resident(str(path))
