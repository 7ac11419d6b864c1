"""The torch build, read from its files. No ROCm wheel is at hand: a stand-in has the names of a real one."""

from __future__ import annotations

from rows import every_row
from stack_trees import SITE, TORCH, VERSION, bundle, elf, torch_hip, wheel


def test_wheel(build):
    wheel(build)
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
    wheel(build)
    build.file("opt/rocm/lib/libMIOpen.so.1", "")
    loader = build.detect(LD_LIBRARY_PATH="relative::/opt/rocm/lib").facts["torch.loader"]
    assert loader.value["libMIOpen"] == "/opt/rocm/lib/libMIOpen.so.1"
    assert loader.value["librocblas"] == "torch/lib/librocblas.so.0"
    assert loader.source == "LD_LIBRARY_PATH, RUNPATH of libtorch_hip.so"


def test_an_rpath_comes_before_the_library_path(build):
    wheel(build)
    build.file("opt/rocm/lib/libMIOpen.so.1", "")
    needed = ["libMIOpen.so.1"]
    build.file(f"{TORCH}/lib/libtorch_hip.so", torch_hip(needed=needed, rpath="/nowhere:${ORIGIN}"))
    loader = build.detect(LD_LIBRARY_PATH="/opt/rocm/lib").facts["torch.loader"]
    assert loader.value["libMIOpen"] == "torch/lib/libMIOpen.so.1"


def test_wheel_with_hashed_names(build):
    build.file(f"{TORCH}/version.py", VERSION.format("1.9.1+rocm4.2", "4.2.21155-37cb3a34"))
    build.file(f"{TORCH}/lib/libMIOpen-12425ccb.so.1", "")
    found = build.detect()
    assert found.value("torch.libraries") == {"libMIOpen": "torch/lib/libMIOpen-12425ccb.so.1"}
    assert found.value("torch.loader") == {"libMIOpen": "torch/lib/libMIOpen-12425ccb.so.1"}


def test_wheel_that_shares_the_rocm_packages(build):
    """TheRock's wheels: libraries in packages beside torch, code in an archive for each target."""
    build.file(f"{TORCH}/version.py", VERSION.format("2.11.0+rocm7.13.0", "7.13.61040"))
    build.file(f"{TORCH}/_rocm_init.py", "")
    build.file(f"{TORCH}/lib/libtorch_hip.so", elf([(".rocm_kpack_ref", b"x")], needed=["libMIOpen.so.1"]))
    build.file(f"{TORCH}/.kpack/torch_gfx1010.kpack", "")
    build.file(f"{SITE}/_rocm_sdk_libraries/lib/libMIOpen.so.1", "")
    build.file(f"{SITE}/_rocm_sdk_libraries/lib/librocblas.so.5", "")
    tensile = f"{SITE}/_rocm_sdk_libraries/lib/rocblas/library/gfx1010"
    build.file(f"{tensile}/TensileLibrary_lazy_gfx1010.dat.zlib", "")
    build.file(f"{SITE}/_rocm_sdk_libraries/share/miopen/db/gfx1030_36.HIP.fdb.txt", "")
    build.rx_5600_xt()
    found = build.detect()
    assert found.value("torch.loader")["libMIOpen"] == "_rocm_sdk_libraries/lib/libMIOpen.so.1"
    assert found.facts["torch.loader"].source == "preloaded by torch"
    assert found.value("torch.targets") == ["gfx1010"]
    assert found.value("rocblas.targets") == ["gfx1010"]
    assert found.value("miopen.db_path") == "_rocm_sdk_libraries/share/miopen/db"


def test_wheel_without_the_package_of_any_target(build):
    build.file(f"{TORCH}/version.py", VERSION.format("2.11.0+rocm7.13.0", "7.13.61040"))
    build.file(f"{TORCH}/lib/libtorch_hip.so", elf([(".rocm_kpack_ref", b"x")]))
    assert build.detect().value("torch.targets") == []


def test_torch_of_a_distribution_takes_the_libraries_of_the_system(build):
    torch = "usr/lib/python3/dist-packages/torch"
    build.file(f"{torch}/version.py", VERSION.format("2.6.0", "5.7.31921"))
    build.file(f"{torch}/lib/libtorch_hip.so", torch_hip(bundle(["gfx1010"]), needed=["libMIOpen.so.1"]))
    build.file("usr/lib/x86_64-linux-gnu/libMIOpen.so.1", "")
    found = build.detect()
    assert found.value("torch.build") == "distribution"
    assert found.value("torch.libraries") is None
    assert found.value("torch.loader") == {"libMIOpen": "/usr/lib/x86_64-linux-gnu/libMIOpen.so.1"}
    assert found.value("torch.targets") == ["gfx1010"]


@every_row(
    ("files", "kind"),
    [
        ({"setup.py": ""}, "source"),
        ({"torch-2.4.0.dist-info/INSTALLER": "conda\n"}, "distribution"),
        ({"torch-2.4.0.dist-info/WHEEL": "Tag: x\n", "torchvision-0.1.dist-info/WHEEL": ""}, "wheel"),
        ({}, None),
    ],
)
def test_how_torch_came_here(build, files, kind):
    build.file(f"{TORCH}/version.py", VERSION.format("2.4.0a0+git123", "6.1.40091"))
    for name, content in files.items():
        build.file(f"{SITE}/{name}", content)
    assert build.detect().value("torch.build") == kind


def test_packages_that_reroute_operators(build):
    wheel(build)
    assert build.detect().value("torch.reroutes") is None
    for name in (
        "hipdnn_torch/__init__.py",
        "hipdnn_torch-0.1.0.dist-info/WHEEL",
        "hipdnn_frontend/__init__.py",
    ):
        build.file(f"{SITE}/{name}", "")
    assert build.detect().value("torch.reroutes") == {"hipdnn_torch": "0.1.0"}


def test_torch_for_the_cpu_has_no_targets(build):
    build.file(f"{TORCH}/version.py", "__version__ = '2.4.0+cpu'\nhip = None\ncuda = None\n")
    found = build.detect()
    assert found.facts["torch.targets"].source == "torch is built for cpu"
    assert found.facts["torch.loader"].source == "torch is built for cpu"


def test_compressed_code_falls_back_to_the_names_of_tensile(build):
    wheel(build)
    build.file(f"{TORCH}/lib/libtorch_hip.so", torch_hip(b"CCOB" + b"\1" * 5000, runpath="$ORIGIN"))
    fact = build.detect().facts["torch.targets"]
    assert fact.value == ["gfx900", "gfx906", "gfx908", "gfx90a", "gfx1030"]
    assert "compressed" in fact.source
    assert "file names in torch/lib/rocblas/library" in fact.source


def test_the_rocblas_of_another_install_says_nothing_of_the_wheel(build):
    wheel(build)
    build.file(f"{TORCH}/lib/libtorch_hip.so", torch_hip(b"CCOB" + b"\1" * 5000, runpath="$ORIGIN"))
    build.file("opt/rocm/lib/librocblas.so.0", "")
    build.file("opt/rocm/lib/rocblas/library/TensileLibrary_lazy_gfx1010.dat", "")
    found = build.detect(LD_LIBRARY_PATH="/opt/rocm/lib")
    assert found.value("rocblas.targets") == ["gfx1010"]
    assert found.value("torch.targets") is None
