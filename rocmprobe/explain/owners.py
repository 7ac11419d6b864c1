"""Rules about ownership: whose code failed, according to frames, statuses, assertions and builds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocmprobe.explain.extraction import PYTHON, USER
from rocmprobe.explain.inference import Inference, LogContext, short
from rocmprobe.explain.situations import WORDS

#: (owner of a native frame, layer that fails, pattern for the frame's symbol or library).
#: Source: the namespaces of MIOpen, rocBLAS, ROCr, CLR, LLVM, PyTorch and ggml; Linux drivers/gpu/drm.
_OWNERS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("MIOpen", "miopen-exec", re.compile(r"\bmiopen::|\bmiopen[A-Z]|libMIOpen")),
    ("rocBLAS", "rocblas", re.compile(r"rocblas|Tensile|hipblas", re.IGNORECASE)),
    ("ROCr", "hsa", re.compile(r"\brocr::|\bHSA::|\bGpuAgent|libhsa-|\bhsa_|hsaKmt|libhsakmt")),
    ("Triton", "triton", re.compile(r"\btriton|libtriton", re.IGNORECASE)),
    ("HIP", "hip", re.compile(r"\bamd::|\bhip[A-Z:_]|\broc::|amdhip64")),
    ("LLVM", "miopen-compile", re.compile(r"comgr|\bllvm::|\bclang::|\blld::|libLLVM")),
    ("PyTorch", "torch-build", re.compile(r"\b(?:c10|at|torch|caffe2)::|libtorch|libc10")),
    ("the program", "user-code", re.compile(r"\b(?:ggml|llama|whisper|sd)_\w|libggml|libllama")),
)
_DRIVER = re.compile(
    r"^(?:amdgpu|kfd|kgd|dcn?\d*|dm|dc|gfx_v|sdma_v|mes_v|smu|psp|vcn_v|gmc_v|drm|ttm|amdkcl|gmc|vm|svm)_|amdgpu|amdkfd"
)


def owner(context: LogContext) -> Iterator[Inference]:
    """Infer the layer from the owner of the innermost native frame.

    Source: gdb, systemd-coredump, torch's backtraces, the kernel's call traces.
    """
    frame = context.structure.native
    if frame is None:
        return
    if frame.kind == "kernel":
        if _DRIVER.search(frame.text) or frame.owner in ("amdgpu", "amdkfd", "amdttm", "amdkcl"):
            says = f"line {frame.line}: the kernel's call trace is in the driver ({frame.text})"
            yield Inference(says, {"kernel-driver-regression": 1.6, "gpu-hang-reset": 0.8}, "driver")
        return
    for who, layer, pattern in _OWNERS:
        if pattern.search(f"{frame.text} {frame.owner}"):
            points = {"miopen-solver-bug": 3.4} if "miopen::solver" in frame.text else {}
            yield Inference(
                f"line {frame.line}: the innermost frame is in {who} ({short(frame.text)})", points, layer
            )
            return


_SOURCES: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("rocm-smi", "", re.compile(r"rocm_smi|amdsmi|amd_smi", re.IGNORECASE)),
    (
        "the HIP runtime",
        "hip",
        re.compile(r"hipamd|/clr/|rocclr|hip-runtime|\bhip_\w+\.cpp|rocdevice", re.IGNORECASE),
    ),
    ("ROCr", "hsa", re.compile(r"rocr|libhsakmt|ROCT|hsa-runtime", re.IGNORECASE)),
    ("MIOpen", "miopen-exec", re.compile(r"miopen|MLOpen", re.IGNORECASE)),
    ("rocBLAS", "rocblas", re.compile(r"rocblas|Tensile|hipblas", re.IGNORECASE)),
)
_REGISTERS = re.compile(r"Out of VGPRs|[Oo]ut of (?:registers|LDS)|too many resources requested for launch")


def too_large_group(context: LogContext) -> Iterator[Inference]:
    """Infer that a kernel needs more registers or LDS than a work-group of its size can have.

    Source: ROCr core/runtime/amd_aql_queue.cpp; HIP, hipErrorLaunchOutOfResources.
    """
    for line in context.lines:
        if _REGISTERS.search(line.text):
            says = f"line {line.number}: a kernel needs more registers or LDS than its group can have"
            remedy = (
                "Launch the kernel with smaller groups (blocks), or build it with `__launch_bounds__` of "
                "the actual size. The card and its ISA are not the cause, even if the error names the ISA."
            )
            points = {"outside": 5.0, "override-isa-mismatch": -3.0, "gpu-memory-fault-unexplained": -2.0}
            yield Inference(says, points, "user-code", remedy=remedy)
            return


#: HIP files that load code objects. A failed assertion in them means that no code object fits the GPU.
_CODE_OBJECTS = re.compile(r"hip_(?:code_object|fatbin)\.cpp")


def assertion(context: LogContext) -> Iterator[Inference]:
    """Infer the layer from the source file of a failed assertion.

    Source: the C library's assert, which prints the file.
    """
    frame = context.structure.asserted
    for who, layer, pattern in _SOURCES if frame else ():
        if frame and pattern.search(frame.text):
            says = f"line {frame.line}: an assertion of {who} failed"
            # rocm-smi only reads sensors, so its failure says nothing about compute.
            points = {"source-build-failure": -2.0} if layer else {"outside": 3.4}
            if _CODE_OBJECTS.search(frame.text):
                points.update({"arch-not-in-wheel": 2.0, "arch-not-in-rocm-lib": 2.0})
            yield Inference(says, points, layer or "user-code")
            return


_JIT = re.compile(
    r"HIPRTC_ERROR|hiprtcCompileProgram(?! is missing)"
    r"|NVRTC_ERROR|nvrtc\.compile|CL_BUILD_PROGRAM_FAILURE|clBuildProgram"
)


def compiled_by_another(context: LogContext) -> Iterator[Inference]:
    """Infer that HIP's run-time compiler refused a kernel of a program, not of MIOpen.

    Source: CLR hiprtc; MIOpen names itself in every line about a kernel.
    """
    if context.words & {"miopen", *WORDS} or not any(_JIT.search(line.text) for line in context.lines):
        return
    if not any(
        weight > 0 and name.startswith(("miopen-", "jit-"))
        for hit in context.fatal
        for name, weight in hit.signature.points.items()
    ):
        return
    raiser = context.structure.python_owner
    who = raiser if raiser not in ("", USER, PYTHON) else "the program"
    line = next(line for line in context.lines if _JIT.search(line.text))
    yield Inference(
        f"line {line.number}: ROCm's run-time compiler rejects a kernel of {who}, not of MIOpen",
        {"miopen-kernel-compile-failure": -6.0, "outside": 4.4}, "hip",
        remedy=f"The compiler's first error names the cause. If it names an option or a function, {who} and "
        f"this ROCm are from different years: update {who}, or use its OpenCL or Vulkan version. A "
        "missing header is in libstdc++-dev or in ROCm's -dev packages.",
    )  # fmt: skip


#: Files of amdgpu-dkms, AMD's kernel module that is built separately from the Linux kernel.
_KERNEL_MODULE = re.compile(r"/kcl/|\bkcl_\w+\.[ch]|/dkms/amdgpu|amdkcl|\bamd/(?:amdgpu|amdkfd|display)/")
_CUDA_BUILD = re.compile(
    r"\bnvcc\b|CUDA_HOME|cuda_runtime\.h|cuda\.h\b|-gencode|CUDAExtension|CUDA_TOOLKIT_ROOT_DIR"
)


#: Causes whose messages a compiler can also print while a package is built.
_OF_A_COMPILER = (
    "jit-missing-host-headers", "jit-header-conflict", "rocm-too-old-for-gpu", "comgr-target-id-mismatch",
)  # fmt: skip
_OF_A_BUILD = ("source-build-failure", "cuda-only-extension", "miopen-kernel-compile-failure")


def failed_build(context: LogContext) -> Iterator[Inference]:
    """Infer from the first error of a build why the build failed, and whether the build is for AMD's GPUs at
    all.

    If the build of a package mentions nvcc or CUDA, the package is probably for CUDA only. Source: compilers,
    linkers, pip, CMake and ninja.
    """
    error, package = context.structure.build_error, context.structure.building
    if package.lower() in ("the", "wheel", "wheels"):
        package = ""
    # If an assertion failed, leave the failure to the rule ``assertion``.
    if context.structure.asserted or not (package or error):
        return
    remedy = error.remedy if error else ""
    if error and not remedy:
        ready = " A ready-made build may include your chip: `rocmprobe list gpus`." if context.is_amd else ""
        remedy = (
            f"Line {error.line} is the first error, and the others follow from it: search for it in the "
            f"tracker of {package or 'the project'}.{ready}"
        )
    says = f"{package or 'the source'} did not build"
    if error:
        says += f"; the first error is in line {error.line} ({error.text})"
    if error and _KERNEL_MODULE.search(error.text):
        says = f"line {error.line}: AMD's kernel module does not compile against this kernel ({error.text})"
        points = {"kernel-driver-mismatch": 6.0, "source-build-failure": -4.0}
        yield Inference(says, points, "driver")
        return
    cuda = next((line for line in context.lines if _CUDA_BUILD.search(line.text)), None)
    if cuda is not None and package:
        asks = f"line {cuda.number}: the build of {package} needs NVIDIA's compiler"
        yield Inference(asks, {"cuda-only-extension": 4.0}, "user-env")
    elif context.fatal_besides(*_OF_A_BUILD, *_OF_A_COMPILER):
        return
    elif (
        error and error.of_amd is False
        and not (context.is_amd or context.facts.rocm or context.fatal_besides(*_OF_A_BUILD))
    ):  # fmt: skip
        says += ", and no line names AMD's GPUs or software"
        remedy = remedy or (
            f"Search for line {error.line} in the project's tracker: later errors follow from it."
        )
        yield Inference(says, {"outside": 5.0}, "user-code", elsewhere=True, remedy=remedy)
    else:
        points = {"source-build-failure": 4.0 if error else 2.8}
        yield Inference(says, points, "torch-build", remedy=remedy)
