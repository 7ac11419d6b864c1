"""Readers of ROCm and torch on files of arbitrary content, and with links in place of files."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine_trees import Build
from stack_trees import SITE, TORCH, bundle, torch_hip
from tiers import examples

from rocmprobe.model.results_file import from_json, to_json

LIBRARY = torch_hip(bundle(["gfx1030"]), needed=["libMIOpen.so.1"], runpath="$ORIGIN:/opt/rocm/lib")
FILES = st.sampled_from(
    [
        "etc/ld.so.cache",
        "etc/ld.so.conf",
        "etc/ld.so.conf.d/rocm.conf",
        "proc/mounts",
        "opt/rocm/.info/version",
        "opt/rocm/lib/libMIOpen.so.1",
        "opt/rocm/share/miopen/db/gfx1030_36.HIP.fdb.txt",
        "opt/rocm/share/miopen/db/gfx1030_" + "9" * 200 + ".db",
        "usr/lib/libamdhip64.so.5.2.21153",
        "usr/lib/librocblas.so.0",
        f"{TORCH}/version.py",
        f"{TORCH}/lib/libtorch_hip.so",
        f"{TORCH}/lib/libMIOpen.so.1",
        f"{TORCH}/lib/librocblas.so.0",
        f"{TORCH}/lib/rocblas/library/TensileLibrary_lazy_gfx1030.dat",
        f"{SITE}/torch-2.4.0.dist-info/WHEEL",
        f"{SITE}/torch-2.4.0.dist-info/INSTALLER",
        "home/x/.cache/miopen/x",
    ]
)
TEXTS = st.sampled_from(
    [
        b"__version__ = '2.4.0+rocm6.1'\nhip = '6.1.40091'\n",
        b"include ld.so.conf.d/*.conf\ninclude ld.so.conf\n/opt/rocm/lib\n/../..\n",
        b"x\0/opt/rocm/lib/libMIOpen.so.1\0",
        b"tmpfs / tmpfs\nx /home/x nfs\n",
        LIBRARY,
    ]
)
CONTENTS = st.one_of(TEXTS, st.binary(max_size=300), st.sampled_from(["loop", "/", "/nowhere", "../.."]))


@given(
    files=st.dictionaries(FILES, CONTENTS, max_size=12),
    paths=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
)
@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
def test_nothing_is_raised(tmp_path_factory, files, paths):
    build = Build(tmp_path_factory.mktemp("any") / "root")
    build.rx_5600_xt()
    for name, content in files.items():
        if isinstance(content, bytes):
            build.file(name, content)
        else:
            build.link(name, name.rpartition("/")[2] if content == "loop" else content)
    names = ("LD_LIBRARY_PATH", "MIOPEN_USER_DB_PATH", "MIOPEN_SYSTEM_DB_PATH", "ROCBLAS_TENSILE_LIBPATH")
    found = build.detect(HOME="/home/x", **dict.fromkeys(names, paths))
    assert not [name for name in found.facts if name.startswith("errors.")]
    assert from_json(type(found), to_json(found)) == found
