"""Where HIP, rocBLAS and MIOpen are found, and which files are mapped."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.backends.direct.libraries import LIBRARIES, find_libraries
from rocmprobe.runtimes.calls import LoadFailed
from rocmprobe.runtimes.hip import Hip
from rocmprobe.runtimes.loaded import mapped

ALL = ("libamdhip64.so.6", "librocblas.so.4", "libMIOpen.so.1")


def put(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_torch_s_libraries_come_first_then_every_place_in_the_loaders_order(tmp_path):
    own = put(tmp_path / "own", *ALL)
    rocm = put(tmp_path / "opt/rocm-6.4.3/lib", *ALL)
    distribution = put(tmp_path / "usr/lib/x86_64-linux-gnu", *ALL)
    site = put(tmp_path / "site")
    put(site / "torch", "__init__.py")
    bundled = put(site / "torch/lib", "libamdhip64.so", "librocblas.so", "libMIOpen.so")
    environ = {"LD_LIBRARY_PATH": f"{own}:relative"}
    found = find_libraries(environ, tmp_path, [str(site)])
    assert found["libMIOpen"] == str(bundled / "libMIOpen.so")
    # A torch without libraries of its own loads those of the system.
    for name in LIBRARIES:
        (bundled / f"{name}.so").unlink()
    for folder in (own, rocm, distribution):
        assert set(find_libraries(environ, tmp_path, [str(site)]).values()) == {
            str(folder / name) for name in ALL
        }
        for name in ALL:
            (folder / name).unlink()
    assert find_libraries(environ, tmp_path, [str(site)]) == {}


def test_the_newest_install_comes_first(tmp_path):
    for name in ("rocm-6.4.3", "rocm-10.0.0", "rocm-6.10.0"):
        put(tmp_path / "opt" / name / "lib", *ALL)
    assert "rocm-10.0.0" in find_libraries({}, tmp_path, [])["libMIOpen"]
    named = put(tmp_path / "mine/lib", *ALL)
    assert find_libraries({"ROCM_PATH": str(tmp_path / "mine")}, tmp_path, [])["libMIOpen"] == str(
        named / "libMIOpen.so.1"
    )


def test_the_newest_version_counts_and_an_incomplete_place_comes_last(tmp_path):
    names = ("libMIOpen.so.1.0.60403", "libMIOpen.so.1.0.9", "libMIOpenDriver.so.7")
    put(tmp_path / "opt/rocm-6.4.3/lib", *names)
    [found] = find_libraries({}, tmp_path, []).values()
    assert found.endswith("libMIOpen.so.1.0.60403")
    put(tmp_path / "usr/lib64", *ALL)
    assert "usr/lib64" in find_libraries({}, tmp_path, [])["libMIOpen"]


def test_the_packages_beside_a_newer_torch_and_names_with_a_hash(tmp_path):
    put(tmp_path / "torch", "__init__.py")
    put(tmp_path / "torch/lib", "libMIOpen-1a2b3c4d.so.1.0")
    put(tmp_path / "_rocm_sdk_core/lib", "libamdhip64.so.7")
    put(tmp_path / "_rocm_sdk_libraries_gfx110X/lib", "librocblas.so.5", "libMIOpen.so.1")
    found = find_libraries({}, tmp_path / "empty", [str(tmp_path)])
    assert set(found) == set(LIBRARIES)
    assert found["libMIOpen"].endswith("torch/lib/libMIOpen-1a2b3c4d.so.1.0")


def test_nothing_is_found_where_nothing_is(tmp_path):
    loop = tmp_path / "opt/rocm"
    loop.parent.mkdir()
    loop.symlink_to("rocm")
    put(tmp_path / "usr", "lib")
    assert find_libraries({"LD_LIBRARY_PATH": "/nowhere:\0:"}, tmp_path, []) == {}


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
    program = "import sys, rocmprobe.worker.main, rocmprobe.worker.direct_driver; "
    program += "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
