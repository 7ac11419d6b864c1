"""The torch build, read from its files. No ROCm wheel is at hand: a stand-in has the names of a real one."""

from __future__ import annotations

import pytest
from machine_trees import tree
from stack_trees import SITE, TORCH, VERSION, bundle, elf, torch_hip, wheel_files


def test_wheel(build):
    build.files(wheel_files())
    found = build.detect()
    versions = [found.value(f"torch.{name}") for name in ("version", "hip", "cuda", "kind", "path", "build")]
    assert versions == [
        "1.13.1+rocm5.2", "5.2.21151-afdc89f8", None, "rocm", "site-packages/torch", "wheel",
    ]  # fmt: skip
    assert (found.value("hip.version"), found.value("python.version")) == ("5.2.21151-afdc89f8", None)
    assert found.value("torch.python_tag") == "cp310-cp310-linux_x86_64"
    assert found.value("torch.libraries")["libMIOpen"] == "torch/lib/libMIOpen.so.1"
    assert found.value("torch.loader") == {
        "libMIOpen": "torch/lib/libMIOpen.so.1",
        "libamd_comgr": "torch/lib/libamd_comgr.so.2",
        "libamdhip64": "torch/lib/libamdhip64.so.5",
        "libhsa-runtime64": "torch/lib/libhsa-runtime64.so.1",
        "librocblas": "torch/lib/librocblas.so.0",
    }
    assert found.facts["torch.loader"].source == "RUNPATH of libtorch_hip.so"
    assert found.value("torch.targets") == ["gfx900", "gfx906", "gfx908", "gfx90a", "gfx1030"]
    assert found.facts["torch.targets"].source == "torch/lib/libtorch_hip.so .hip_fatbin"
    assert found.value("rocblas.targets") == ["gfx900", "gfx906", "gfx908", "gfx90a", "gfx1030"]
    assert found.value("rocblas.path") == "torch/lib/rocblas/library"
    assert found.value("miopen.version") == "2.17.0"
    assert "bundles MIOpen" in found.facts["miopen.version"].source
    assert found.facts["miopen.version_told"].source == "not run: --root"


def test_the_library_path_swaps_the_libraries_of_a_wheel(build):
    """A wheel has a RUNPATH, which comes after LD_LIBRARY_PATH."""
    build.files(wheel_files())
    build.file("opt/rocm/lib/libMIOpen.so.1", "")
    loader = build.detect(LD_LIBRARY_PATH="relative::/opt/rocm/lib").facts["torch.loader"]
    assert loader.value["libMIOpen"] == "/opt/rocm/lib/libMIOpen.so.1"
    assert loader.value["librocblas"] == "torch/lib/librocblas.so.0"
    assert loader.source == "LD_LIBRARY_PATH, RUNPATH of libtorch_hip.so"


def test_an_rpath_comes_before_the_library_path(build):
    build.files(wheel_files())
    build.file("opt/rocm/lib/libMIOpen.so.1", "")
    needed = ["libMIOpen.so.1"]
    build.file(f"{TORCH}/lib/libtorch_hip.so", torch_hip(needed=needed, rpath="/nowhere:${ORIGIN}"))
    loader = build.detect(LD_LIBRARY_PATH="/opt/rocm/lib").facts["torch.loader"]
    assert loader.value["libMIOpen"] == "torch/lib/libMIOpen.so.1"


DIST = "usr/lib/python3/dist-packages/torch"
SDK = f"{SITE}/_rocm_sdk_libraries"
ROCK = VERSION.format("2.11.0+rocm7.13.0", "7.13.61040")
COMPRESSED = {f"{TORCH}/lib/libtorch_hip.so": torch_hip(b"CCOB" + b"\1" * 5000, runpath="$ORIGIN")}
HASHED = {"libMIOpen": "torch/lib/libMIOpen-12425ccb.so.1"}


@pytest.mark.parametrize(
    ("files", "environ", "facts", "sources"),
    [
        tree("a wheel with hashed names",
             {f"{TORCH}/version.py": VERSION.format("1.9.1+rocm4.2", "4.2.21155-37cb3a34"),
              f"{TORCH}/lib/libMIOpen-12425ccb.so.1": ""},
             {"torch.libraries": HASHED, "torch.loader": HASHED, "torch.reroutes": None}),
        # TheRock's wheels: libraries in packages beside torch, code in an archive for each target.
        tree("a wheel that shares the ROCm packages",
             {f"{TORCH}/version.py": ROCK, f"{TORCH}/_rocm_init.py": "",
              f"{TORCH}/lib/libtorch_hip.so": elf([(".rocm_kpack_ref", b"x")], needed=["libMIOpen.so.1"]),
              f"{TORCH}/.kpack/torch_gfx1010.kpack": "", f"{SDK}/lib/libMIOpen.so.1": "",
              f"{SDK}/lib/librocblas.so.5": "",
              f"{SDK}/lib/rocblas/library/gfx1010/TensileLibrary_lazy_gfx1010.dat.zlib": "",
              f"{SDK}/share/miopen/db/gfx1030_36.HIP.fdb.txt": ""},
             {"torch.loader": {"libMIOpen": "_rocm_sdk_libraries/lib/libMIOpen.so.1",
                               "librocblas": "_rocm_sdk_libraries/lib/librocblas.so.5"},
              "torch.targets": ["gfx1010"], "rocblas.targets": ["gfx1010"],
              "miopen.db_path": "_rocm_sdk_libraries/share/miopen/db"},
             {"torch.loader": "preloaded by torch"}),
        tree("a wheel without the package of any target",
             {f"{TORCH}/version.py": ROCK,
              f"{TORCH}/lib/libtorch_hip.so": elf([(".rocm_kpack_ref", b"x")])}, {"torch.targets": []}),
        tree("a torch of the distribution takes the libraries of the system",
             {f"{DIST}/version.py": VERSION.format("2.6.0", "5.7.31921"),
              f"{DIST}/lib/libtorch_hip.so": torch_hip(bundle(["gfx1010"]), needed=["libMIOpen.so.1"]),
              "usr/lib/x86_64-linux-gnu/libMIOpen.so.1": ""},
             {"torch.build": "distribution", "torch.libraries": None, "torch.targets": ["gfx1010"],
              "torch.loader": {"libMIOpen": "/usr/lib/x86_64-linux-gnu/libMIOpen.so.1"}}),
        *(tree(f"built by: {kind}",
               {f"{TORCH}/version.py": VERSION.format("2.4.0a0+git123", "6.1.40091"), **files},
               {"torch.build": kind}) for files, kind in (
            ({f"{SITE}/setup.py": ""}, "source"),
            ({f"{SITE}/torch-2.4.0.dist-info/INSTALLER": "conda\n"}, "distribution"),
            ({f"{SITE}/torch-2.4.0.dist-info/WHEEL": "Tag: x\n",
              f"{SITE}/torchvision-0.1.dist-info/WHEEL": ""}, "wheel"),
            ({}, None),
        )),
        tree("packages that reroute operators",
             {**wheel_files(), f"{SITE}/hipdnn_torch/__init__.py": "",
              f"{SITE}/hipdnn_torch-0.1.0.dist-info/WHEEL": "", f"{SITE}/hipdnn_frontend/__init__.py": ""},
             {"torch.reroutes": {"hipdnn_torch": "0.1.0"}}),
        tree("a torch for the CPU",
             {f"{TORCH}/version.py": "__version__ = '2.4.0+cpu'\nhip = None\ncuda = None\n"}, {},
             {"torch.targets": "torch is built for cpu", "torch.loader": "torch is built for cpu"}),
        tree("compressed code: the names of Tensile", {**wheel_files(), **COMPRESSED},
             {"torch.targets": ["gfx900", "gfx906", "gfx908", "gfx90a", "gfx1030"]},
             {"torch.targets": "file names in torch/lib/rocblas/library"}),
        tree("compressed code, and the rocBLAS of another install",
             {**wheel_files(), **COMPRESSED, "opt/rocm/lib/librocblas.so.0": "",
              "opt/rocm/lib/rocblas/library/TensileLibrary_lazy_gfx1010.dat": ""},
             {"rocblas.targets": ["gfx1010"], "torch.targets": None}, {"torch.targets": "compressed"},
             LD_LIBRARY_PATH="/opt/rocm/lib"),
    ],
)  # fmt: skip
def test_builds(build, files, environ, facts, sources):
    build.rx_5600_xt()
    build.check(files, environ, facts, sources)
