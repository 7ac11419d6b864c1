"""Where HIP, rocBLAS and MIOpen are found, and which files are mapped."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.backends.capi import LIBRARIES, Hip, LoadFailed, choose, places
from rocmprobe.runtimes.loaded import mapped

ALL = ("libamdhip64.so.6", "librocblas.so.4", "libMIOpen.so.1")


def put(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_every_kind_of_place_in_the_loaders_order(tmp_path):
    own = put(tmp_path / "own", *ALL)
    put(tmp_path / "opt/rocm-6.4.3/lib", *ALL)
    put(tmp_path / "usr/lib/x86_64-linux-gnu", *ALL)
    site = put(tmp_path / "site")
    put(site / "torch", "__init__.py")
    put(site / "torch/lib", "libamdhip64.so", "librocblas.so", "libMIOpen.so")
    found = places({"LD_LIBRARY_PATH": f"{own}:relative"}, tmp_path, [str(site)])
    assert [(place.origin, place.missing) for place in found] == [
        ("environment", ()), ("rocm", ()), ("distribution", ()), ("torch", ()),
    ]  # fmt: skip
    assert choose(found) == found[0]
    assert choose(found, "torch").files["libMIOpen"] == str(site / "torch/lib/libMIOpen.so")
    assert choose(found, str(own)) == found[0]
    assert choose(found, "elsewhere") is None
    assert choose([]) is None


def test_links_to_one_install_are_one_place(tmp_path):
    put(tmp_path / "opt/rocm-6.4.3/lib", *ALL)
    (tmp_path / "opt/rocm").symlink_to("rocm-6.4.3")
    found = places({"ROCM_PATH": str(tmp_path / "opt/rocm")}, tmp_path, [])
    assert [place.folder for place in found] == [str(tmp_path / "opt/rocm/lib")]


def test_the_newest_install_comes_first(tmp_path):
    for name in ("rocm-6.4.3", "rocm-10.0.0", "rocm-6.10.0"):
        put(tmp_path / "opt" / name / "lib", *ALL)
    found = places({}, tmp_path, [])
    assert [place.folder.split("/")[-2] for place in found] == ["rocm-10.0.0", "rocm-6.10.0", "rocm-6.4.3"]


def test_the_newest_version_counts_and_an_incomplete_place_comes_last(tmp_path):
    put(
        tmp_path / "opt/rocm-6.4.3/lib",
        "libMIOpen.so.1.0.60403",
        "libMIOpen.so.1.0.9",
        "libMIOpenDriver.so.7",
    )
    put(tmp_path / "usr/lib64", *ALL)
    found = places({}, tmp_path, [])
    assert found[0].missing == ("libamdhip64", "librocblas")
    assert found[0].files["libMIOpen"].endswith("libMIOpen.so.1.0.60403")
    assert choose(found).origin == "distribution"
    assert choose(found, "rocm") == found[0]


def test_the_packages_beside_a_newer_torch_and_names_with_a_hash(tmp_path):
    put(tmp_path / "torch", "__init__.py")
    put(tmp_path / "torch/lib", "libMIOpen-1a2b3c4d.so.1.0")
    put(tmp_path / "_rocm_sdk_core/lib", "libamdhip64.so.7")
    put(tmp_path / "_rocm_sdk_libraries_gfx110X/lib", "librocblas.so.5", "libMIOpen.so.1")
    [place] = places({}, tmp_path / "empty", [str(tmp_path)])
    assert place.missing == ()
    assert place.files["libMIOpen"].endswith("torch/lib/libMIOpen-1a2b3c4d.so.1.0")


def test_nothing_is_found_where_nothing_is(tmp_path):
    loop = tmp_path / "opt/rocm"
    loop.parent.mkdir()
    loop.symlink_to("rocm")
    put(tmp_path / "usr", "lib")
    assert places({"LD_LIBRARY_PATH": "/nowhere:\0:"}, tmp_path, []) == []


def test_the_mapped_files(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r--p 00000000 08:01 11  /opt/rocm 6/lib/libMIOpen.so.1.0.60403\n"
        "7f01-7f02 r-xp 00001000 08:01 11  /opt/rocm 6/lib/libMIOpen.so.1.0.60403\n"
        "7f03-7f04 r-xp 00000000 08:01 12  /opt/rocm/lib/libamdhip64.so.6 (deleted)\n"
        "7f05-7f06 r-xp 00000000 08:01 13  /site/torch/lib/libamdhip64.so\n"
        "7f07-7f08 rw-p 00000000 00:00 0\n"
        "7f09-7f0a rw-p 00000000 00:00 0   [heap]\n"
    )
    assert mapped(LIBRARIES, str(maps)) == {
        "libMIOpen": ["/opt/rocm 6/lib/libMIOpen.so.1.0.60403"],
        "libamdhip64": ["/opt/rocm/lib/libamdhip64.so.6", "/site/torch/lib/libamdhip64.so"],
    }
    assert mapped(LIBRARIES, str(tmp_path / "none")) == {}


@given(content=st.binary())
def test_any_bytes_are_read(tmp_path_factory, content):
    maps = tmp_path_factory.mktemp("maps") / "maps"
    maps.write_bytes(content)
    mapped(LIBRARIES, str(maps))


def test_a_loaded_library_is_seen_to_be_mapped(stand_in):
    Hip(str(stand_in / "libamdhip64.so.6"))
    assert str((stand_in / "libamdhip64.so.6").resolve()) in mapped(LIBRARIES)["libamdhip64"]


@pytest.mark.parametrize("content", [None, b"not a library"])
def test_a_file_that_does_not_load(tmp_path, content):
    path = tmp_path / "libamdhip64.so"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoadFailed, match=r"libamdhip64\.so"):
        Hip(str(path))


def test_neither_torch_nor_numpy_comes_along():
    program = "import sys, rocmprobe.backends.capi, rocmprobe.backends.capi.reference; "
    program += "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
