"""Lines as ROCm programs print them, for the tests of `rocmprobe explain`."""

#: No two of these are the same but for numbers.
LINES = (
    "MIOpen(HIP): Warning [SQLiteBase] Missing system database file: gfx1030_40.kdb Performance may "
    "degrade. Please follow instructions to install: https://github.com/ROCmSoftwarePlatform/MIOpen#installing-miopen",
    "MIOpen(HIP): Error [Compile] 'hiprtcCompileProgram(prog.get(), c_options.size(), c_options.data())' "
    "naive_conv.cpp: HIPRTC_ERROR_COMPILATION (6)",
    "MIOpen Error: /MIOpen/src/hipoc/hipoc_program.cpp:300: Code object build failed. Source: naive_conv.cpp",
    "/tmp/comgr-39ed63/include/data_type.hpp:14:10: fatal error: 'limits' file not found",
    "#include <limits> // std::numeric_limits",
    "terminate called after throwing an instance of 'miopen::Exception'",
    "Memory access fault by GPU node-1 (Agent handle: 0x55f8b54eec30) on address 0x7f2a53193000. Reason: "
    "Page not present or supervisor privilege.",
    "rocBLAS error: Cannot read /opt/rocm-5.4.0/lib/rocblas/library/TensileLibrary.dat: Illegal seek",
    ":0:rocdevice.cpp            :2673: 1263352162 us: 21870: [tid:0x7f64e3eff640] "
    "Device::callbackQueue aborting with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent "
    "attempted to access memory beyond the largest legal address. code: 0x29",
    "RuntimeError: HIP error: invalid device function",
    "HIP kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
    "might be incorrect.",
    "For debugging consider passing AMD_SERIALIZE_KERNEL=3",
    "PyTorch version: 2.0.1+rocm5.4.2",
    "amdgpu 0000:2f:00.0: amdgpu: GPU reset begin!",
    "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=159760, "
    "emitted seq=159762",
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 80.00 MiB. GPU 0 has a total capacity of "
    "15.98 GiB of which 84.00 MiB is free.",
    "Aborted (core dumped)",
)

#: Reasons that MIOpen gives where a file of its databases or caches is damaged.
DAMAGED = (
    "MIOpen Error: BZ2_bzBuffToBuffDecompress failed: the size of the compressed data exceeds *destLen",
    "MIOpen Error: /MIOpen/src/bz2.cpp:61: BZ2_bzBuffToBuffDecompress failed: a data integrity error",
    "MIOpen Error: src/hipoc/hipoc_program.cpp:164: Failed loading module: device kernel image is invalid",
    "MIOpen Error: src/solver/gemm.cpp:958: Not enough workspace for GemmFwdRest (0 provided, 576 required)",
    "MIOpen Error: src/solver/gemm_bwd.cpp:310: Not enough workspace for GemmBwd1x1_stride2. (0 < 9216)",
)

COLLECT_ENV = """\
PyTorch version: 1.13.1+rocm5.2
Is debug build: False
CUDA used to build PyTorch: N/A
ROCM used to build PyTorch: 5.2.21151-afdc89f8

OS: Ubuntu 22.04.3 LTS (x86_64)
GCC version: (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
GPU models and configuration: AMD Radeon RX 5600 XT
HIP runtime version: 5.2.21151
MIOpen runtime version: 2.17.0
"""

ROCMINFO = """\
ROCk module is loaded
*******
Agent 1
*******
  Name:                    AMD Ryzen 5 3600 6-Core Processor
  Marketing Name:          AMD Ryzen 5 3600 6-Core Processor
  Device Type:             CPU
*******
Agent 2
*******
  Name:                    gfx1031
  Marketing Name:          AMD Radeon RX 6700 XT
  Device Type:             GPU
  ISA 1
      Name:                    amdgcn-amd-amdhsa--gfx1031
*** Done ***
"""
