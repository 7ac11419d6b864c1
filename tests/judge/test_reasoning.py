"""What a log says in structure, and what follows from it: scope, owner, numbers, chip and stack."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import every_row

from rocmprobe.explain.errors import meanings
from rocmprobe.explain.explain import Explanation, explain, without_torch, without_what_is_set
from rocmprobe.explain.extraction import PYTHON, USER, answers, extract, owner_of
from rocmprobe.explain.log_facts import Facts, facts_in, merge_and_derive
from rocmprobe.knowledge.causes import layers
from rocmprobe.text.log import of_text

NOTHING = Facts()
NAVI10 = Facts(true_gfx="gfx1010", torch="2.6.0+rocm6.2")
RUN = """Traceback (most recent call last):
  File "/home/x/ComfyUI/execution.py", line 323, in execute
    output = get()
"""
SITE = "/home/x/venv/lib/python3.10/site-packages"


def answer(text: str, facts: Facts = NOTHING) -> Explanation:
    log = of_text(text)
    return explain(log, merge_and_derive(facts, facts_in(log)))


class TestMeaningsOfErrors:
    """What is answered where no cause is sure: rows of data/errors.toml."""

    def test_each_row_is_whole(self):
        known = {layer.name for layer in layers()}
        for row in meanings():
            assert row.of in ("amd", "nvidia", "elsewhere")
            assert row.regex.pattern
            assert row.layer in known, row
            assert all((row.says, row.step, row.source))
            assert row.step.endswith((".", ")")), row

    @every_row(
        ("text", "layer", "says", "do"),
        [
            ("RuntimeError: HIP error: shared object initialization failed", "torch-build",
             "another chip or another ROCm release", "build the program for it"),
            ("[FATAL ERROR]: HIP failure: 'invalid device pointer'", "hip", "does not recognize a pointer",
             "NCCL_P2P_DISABLE"),
            (":1:rocdevice.cpp :1824: 38 us: HSA_AMD_AGENT_INFO_MEMORY_AVAIL query failed.", "driver",
             "older than this ROCm", "host"),
            ("RuntimeError: No HIP GPUs are available", "hip", "HIP finds no GPU", "rocminfo"),
            ("rocBLAS error from hip error code: 'hipErrorInvalidDeviceFunction':98", "rocblas",
             "rocBLAS lacks", "rocBLAS"),
            ("ROCR: unsupported GPU\nCall returned HSA_STATUS_ERROR_OUT_OF_RESOURCES", "hsa",
             "does not support the GPU", "newer ROCm"),
            ("[1.0] amdgpu 0000:03:00.0: amdgpu: oops, a failure that nobody knows", "driver",
             "(amdgpu) reports an error", "dmesg"),
            ("amdgpu 0000:03:00.0: [gfxhub] page fault (vmid:0, for process pid 0 thread pid 0)", "driver",
             "not a program's kernel", "linux-firmware"),
            ("amdgpu 0000:03:00.0: [gfxhub] page fault\namdgpu 0000:03:00.0: Fatal error during GPU init",
             "driver", "cannot start the GPU", "Unplug the machine"),
            ("level=WARN msg=\"unable to verify rocm library: no suitable rocm found\"", "user-env",
             "does not find its ROCm libraries", "ollama-rocm"),
            ("rocBLAS error: Tensile solution found, but exception thrown for { a_type }", "rocblas",
             "fails to run it", "another build of rocBLAS"),
            ("ERROR: hipconfig not found at /opt/rocm/bin/hipconfig", "user-env", "not where", "ROCM_PATH"),
        ],
    )  # fmt: skip
    def test_an_error_of_amd_s_stack(self, text, layer, says, do):
        found = answer(text)
        assert found.layer.name == layer
        assert says in found.summary
        assert do in found.action
        assert not found.elsewhere

    @every_row(
        ("text", "cause"),
        [
            ("UserWarning: CUDA initialization: Error 803: unsupported display driver", "benign-warning"),
            ("WARNING: An NVIDIA GPU may be present on this machine\n[1] 13708 killed python x.py",
             "benign-warning"),
            (":0:rocdevice.cpp: HSA_STATUS_ERROR_INVALID_ISA: The instruction set architecture is invalid",
             "override-isa-mismatch"),
            ("OSError: libc10_hip.so: cannot open shared object file: No such file", "library-path"),
            ("x.py:3: RuntimeWarning: invalid value encountered in cast", "benign-warning"),
            ("A matching Triton is not available\nError caught was: No module named 'triton'\nstep 3",
             "cuda-only-extension"),
        ],
    )  # fmt: skip
    def test_what_is_not_claimed(self, text, cause):
        found = answer(text)
        assert not (found.sure and found.causes[0].cause == cause)

    def test_a_path_of_windows_is_no_apple_machine(self):
        text = "C:\\Users\\x> python C:/Users/x/a.py\nDynamic library 'cudart64_110.dll' not found"
        assert "Apple" not in answer(text).summary

    def test_the_nearest_to_the_hardware_is_the_answer(self):
        found = answer(
            "[1.0] PCIe Bus Error: severity=Fatal\nHSA_STATUS_ERROR: A generic error\nHIP error: x"
        )
        assert found.layer.name == "hardware"

    def test_an_error_of_the_program_s_own(self):
        found = answer(f'{RUN}  File "{SITE}/demucs/x.py", line 3\nRuntimeError: no such stem')
        assert "demucs stops with its own error" in found.summary
        assert found.layer.name == "user-code"

    @every_row(
        ("text", "hint"),
        [
            ("ValueError: The file is too large. Use `hf_transfer` or `hf_xet` instead.", "hf_xet"),
            (
                "error: the template failed\ninit: please consider disabling jinja via --no-jinja",
                "--no-jinja",
            ),
        ],
    )
    def test_a_remedy_that_the_log_names_comes_first(self, text, hint):
        action = answer(text).action
        assert action.startswith("The log itself says: ")
        assert hint in action

    @every_row(
        "text",
        [
            "RuntimeError: HIP error: x\nFor debugging consider passing AMD_SERIALIZE_KERNEL=3",
            "RuntimeError: Torch is not able to use GPU; add --skip-torch-cuda-test to disable this check",
            "PS C:\\x> pip install torch --index-url x\nERROR: No matching distribution found for torch",
        ],
    )
    def test_a_remedy_that_hides_the_failure_is_not_repeated(self, text):
        assert "The log itself says" not in answer(text).action

    def test_an_error_that_names_a_gpu_is_not_called_the_program_s_own(self):
        assert "own" not in answer("RuntimeError: the GPU went away").summary

    def test_advice_about_pytorch_is_not_given_to_other_programs(self):
        assert without_torch("Do this. Set torch.x = 1. Then that.") == "Do this. Then that."
        assert "rocmprobe run" in without_torch("Set torch.x = 1.")


class TestExtraction:
    @every_row(
        ("path", "owner"),
        [
            (f"{SITE}/diffusers/models/unet.py", "diffusers"),
            (f"{SITE}/six.py", "six"),
            ("/usr/lib/python3/dist-packages/numpy/core.py", "numpy"),
            ("C:\\ComfyUI\\custom_nodes\\KJNodes\\nodes.py", "KJNodes"),
            ("/usr/lib/python3.10/json/decoder.py", PYTHON),
            ("C:\\Python310\\lib\\json\\decoder.py", PYTHON),
            ("/home/x/ComfyUI/execution.py", USER),
            ("train.py", USER),
        ],
    )
    def test_owners_of_python_files(self, path, owner):
        assert owner_of(path) == owner

    @every_row(
        ("text", "kind", "message", "raiser"),
        [
            (f'{RUN}  File "{SITE}/torch/x.py", line 1, in f\nTypeError: no', "TypeError", "no", "torch"),
            (f"{RUN}huggingface_hub.errors.EntryNotFoundError: 404", "EntryNotFoundError", "404", USER),
            ("terminate called after throwing an instance of 'miopen::Exception'\n  what():  x.cpp:3: no",
             "Exception", "x.cpp:3: no", ""),
            ("- **Exception Type:** KeyError\n- **Exception Message:** 'x'", "KeyError", "'x'", ""),
            ("ERROR: it broke", "", "ERROR: it broke", ""),
            ("RuntimeError:\n  The version is old", "RuntimeError", "The version is old", ""),
            ("    | [rank0]: ValueError: no", "ValueError", "no", ""),
        ],
    )  # fmt: skip
    def test_the_last_error(self, text, kind, message, raiser):
        record = extract(of_text(text))
        assert (record.error.kind, record.error.message, record.python_owner) == (kind, message, raiser)

    @every_row(
        ("text", "kind", "symbol"),
        [
            ("#0  0x7f in raise ()\n#1  0x7f in miopen::solver::X () from /opt/rocm/lib/libMIOpen.so.1",
             "native", "miopen::solver::X"),
            ("frame #2: c10::f() + 0x3a (0x7f in /v/torch/lib/libc10_hip.so)", "native", "c10::f()"),
            ("Call Trace:\n <TASK>\n dump_stack_lvl+0x4a/0x60\n amdgpu_vm_fini+0x1a/0x60 [amdgpu]", "kernel",
             "amdgpu_vm_fini"),
        ],
    )  # fmt: skip
    def test_the_innermost_native_frame_that_is_somebody_s(self, text, kind, symbol):
        frame = extract(of_text(text)).native
        assert (frame.kind, frame.text) == (kind, symbol)

    def test_memory(self):
        text = (
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
            "capacity of 5.98 GiB of which 1.00 GiB is free. Of the allocated memory 1.50 GiB is allocated "
            "by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
        )
        memory = extract(of_text(text)).memory
        gib = 1024**3
        assert (memory.requested, memory.free, memory.allocated) == (2 * gib, gib, 1.5 * gib)
        assert memory.of_others == pytest.approx((5.98 - 1 - 1.5 - 0.5) * gib)

    @given(st.text(max_size=300))
    def test_no_text_breaks_it(self, text):
        extract(of_text(text))


class TestScope:
    @every_row(
        ("text", "facts", "says"),
        [
            (f'{RUN}  File "{SITE}/diffusers/a.py", line 1, in f\nKeyError: 1', NAVI10, "diffusers raised"),
            (f"{RUN}FileNotFoundError: [Errno 2] No such file: 'a.yaml'", NAVI10, "raised FileNotFoundError"),
            (f"{RUN}requests.exceptions.ConnectionError: Max retries exceeded", NAVI10, "the network"),
            (f'{RUN}  File "{SITE}/urllib3/a.py", line 1, in f\nTimeoutError: timed out', NAVI10, "u"
                                                                                                  "r"
                                                                                                  "l"
                                                                                                  "l"
                                                                                                  "i"
                                                                                                  "b"
                                                                                                  "3 failed"),
            (f"{RUN}ModuleNotFoundError: No module named 'yaml'", NAVI10, "a Python package is not "
                                                                          "installed"),
            ("ERROR load: cannot import name 'X' from 'transformers'", NAVI10, "do not match"),
            ("cuda_dnn.cc:439] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR", NOTHING,
             "the log names a GPU or software of NVIDIA"),
            ("ImportError: /v/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommResume", NOTHING,
             "this torch is a build for CUDA"),
            ("GPU 0: NVIDIA GeForce RTX 5090\nRuntimeError: CUDA error: no kernel image", NOTHING,
             "the log names a GPU or software of NVIDIA"),
            ("macOS 14.1\nUsing device: mps\nRuntimeError: MPS backend out of memory", NOTHING,
             "the log names a GPU or software of Apple"),
            ("[ 1.0] i915 0000:09:00.0: [drm] GPU HANG: ecode 12", NOTHING,
             "the log names a GPU or software of Intel"),
            ("NVIDIA-SMI has failed because it couldn't communicate\nRuntimeError: No CUDA GPUs", NOTHING,
             "the log names a GPU or software of NVIDIA"),
            ("DML allocator out of memory!\nRuntimeError: Unknown error", NAVI10,
             "the program uses DirectML"),
            ("ggml_vulkan: Device memory allocation failed\nvk::SystemError: ErrorDeviceLost", NOTHING,
             "the program uses Vulkan"),
            ("error: failed to commit transaction (conflicting files)", NAVI10, "pacman stops"),
            ("==> ERROR: One or more files did not pass the validity check!", NOTHING, "makepkg stops"),
            ("ERROR: failed to solve: me/base:1: pull access denied", NOTHING, "Docker stops"),
            ("ERROR: No matching distribution found for rocm[libraries]", NOTHING, "pip stops"),
            ("error: externally-managed-environment", NAVI10, "pip stops"),
            ("  Unable to find installation candidates for torch (2.1.0+cu118)", NOTHING, "Poetry stops"),
            ("  - nothing provides __cuda needed by pytorch-1.13.0-cuda112", NOTHING, "conda stops"),
            ("Problem: nothing provides 'perl-URI-Encode' needed by hip-devel-5.3", NOTHING, "manager stops"),
            ("what(): copy_file: No space left on device\nERROR: failed to solve: process \"sh\"", NOTHING,
             "no space is left on a disk"),
            ("usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --foo", NOTHING, "--foo"),
            ("Error: model requires more system memory (164.8 GiB) than is available (13.4 GiB)", NAVI10,
             "main memory is too small"),
            ("AttributeError: module 'modules.devices' has no attribute 'cuda_ok'", NAVI10, "AttributeError"),
            ("python: can't open file '/home/x/a.py': [Errno 2] No such file or directory", NOTHING,
             "can't open file"),
        ],
    )  # fmt: skip
    def test_what_is_not_amd_s(self, text, facts, says):
        found = answer(text, facts)
        assert found.elsewhere
        assert says in found.summary
        assert found.decide is None

    @every_row(
        ("error", "do"),
        [
            ("ModuleNotFoundError: No module named 'yaml'", "the package with the module yaml"),
            (f"ImportError: cannot import name 'X' from 'gradio.y' ({SITE}/gradio/y.py)",
             "The installed gradio is older"),
            ("ImportError: cannot import name 'db' from 'base' (C:\\srv\\base.py)", "belongs to the program"),
            ("AttributeError: module 'numpy' has no attribute 'i'", "The name is misspelt"),
            ("AttributeError: module 'onnx' has no attribute 'load'", "print(onnx.__file__)"),
            ("RuntimeError: Error(s) in loading state_dict for A: size mismatch", "made for another model"),
            ("KeyError: 'state_dict'", "made for another model"),
            ("ValueError: numpy.ufunc size changed, may indicate", "built for another NumPy"),
            ("safetensors_rust.SafetensorError: HeaderTooLarge", "download it again"),
            ("huggingface_hub.errors.GatedRepoError: 401 Client Error", "accept the terms"),
            ("TypeError: f() got an unexpected keyword argument 'x'", "do not match"),
            ("FileNotFoundError: [Errno 2] No such file or directory: 'a/b.yaml'", "a/b.yaml is missing"),
            ("json.decoder.JSONDecodeError: Expecting value: line 1", "not valid JSON"),
            ("requests.exceptions.ConnectionError: Max retries exceeded", "check the proxy"),
            ("NVIDIA GeForce RTX 3090\nRuntimeError: CUDA error: misaligned address", "CUDA_LAUNCH_BLOCKING"),
            ("NVIDIA GeForce RTX 3090\nRuntimeError: it is broken", "AMD's GPUs only"),
            ("RuntimeError: load: [Errno 2] No such file or directory: 'ffmpeg'", "program ffmpeg is not"),
        ],
    )  # fmt: skip
    def test_what_to_do_names_what_failed(self, error, do):
        found = answer(f"{RUN}{error}")
        assert do in found.action
        assert found.action == found.causes[0].advice

    def test_a_name_that_numpy_removed_is_another_version_and_a_misspelt_one_is_not(self):
        removed = answer(f"{RUN}AttributeError: module 'numpy' has no attribute 'bool'")
        assert removed.causes[0].cause == "python-package-conflict"
        misspelt = answer(f"{RUN}AttributeError: module 'numpy' has no attribute 'i'")
        assert misspelt.causes[0].cause == "outside"

    def test_in_a_journal_nothing_says_which_program_failed(self):
        lines = (
            "Sep 17 10:28:43 host gnome-shell[3580]: assertion 'window' failed",
            "Sep 17 10:28:44 host gsd-screensaver[3008]: Error releasing name: the connection is closed",
        )
        assert "stops with its own error" not in answer("\n".join(lines)).summary
        assert "stops with its own error" in answer(lines[1]).summary

    def test_a_target_without_a_suffix_is_a_question_of_the_compiler_s_age(self):
        found = answer("clang: error: invalid target ID 'gfx1200'; format is e.g. 'gfx908:sramecc+'")
        assert found.causes[0].cause == "source-build-failure"
        assert "older than the chip" in found.action
        found = answer("error: invalid target ID 'gfx900:sramecc-'", Facts(true_gfx="gfx900"))
        assert found.causes[0].cause == "comgr-target-id-mismatch"

    def test_a_function_of_every_hip_that_is_absent_means_that_hip_is_not_linked(self):
        every = answer("./a.out: undefined symbol: hipGetDeviceCount", NAVI10)
        assert "linked without HIP" in " ".join(every.causes[0].evidence)
        newer = answer("libMIOpen.so.1: undefined symbol: hipGraphAddExternalNode", NAVI10)
        assert newer.causes[0].cause == "rocm-versions-mixed"

    def test_an_unavailable_gpu_is_a_failure_though_only_remarks_precede_it(self):
        text = "amdgpu: SMU driver if version not matched\ntorch.cuda.is_available: False"
        for found in (answer(text), answer(text, Facts(gpu="Radeon RX 7600"))):
            assert "benign-warning" not in [cause.cause for cause in found.causes[:1]]
            assert "no line reports a failure" not in found.summary

    def test_a_page_fault_of_no_process_is_the_driver_s(self):
        fault = "amdgpu 0000:33:00.0: [gfxhub] page fault (src_id:0 vmid:{} pasid:0, for process {})"
        nobody = answer(fault.format(0, " pid 0 thread  pid 0"), Facts(true_gfx="gfx1100"))
        assert "not a program's kernel" in nobody.summary
        program = answer(fault.format(8, "python pid 42 thread python pid 42"), Facts(true_gfx="gfx1100"))
        assert "not a program's kernel" not in program.summary

    def test_words_alone_do_not_blame_miopen(self):
        frame = "#0 0x8a6 in llvm::RegisterTargetMachine<llvm::GCNTargetMachine> ()"
        found = answer(f"Thread 1 received signal SIGSEGV\n{frame}", Facts(true_gfx="gfx90a", rocm="5.6"))
        assert "MIOpen" not in found.summary

    def test_a_traceback_at_the_end_is_not_excused_by_a_warning_about_something_else(self):
        text = f"WARNING | 6 samples were skipped\n{RUN}ValueError: numpy.ndarray size changed"
        assert answer(text).causes[0].cause == "python-package-conflict"

    def test_a_traceback_that_a_warning_announces_is_its_reason(self):
        text = f"WARNING Failed to load an option due to the following error:\n{RUN}ValueError: none"
        structure = extract(of_text(text))
        assert structure.error is None
        assert structure.excused >= {2, 5}

    @every_row(
        "text",
        [
            "$ ocloc compile -file a.cl\nSegmentation fault",
            "Thread 1 received signal SIGSEGV, Segmentation fault.\n0x7ffff7e4 in free () from /lib/libc.so",
        ],
    )
    def test_a_crash_alone_is_no_sign_of_the_build_of_pytorch(self, text):
        assert not answer(text).causes

    @every_row(
        "frame",
        [
            "#0  0x00007f931d6d2850 in ?? () from /opt/rocm/hsa/lib/libhsa-ext-image64.so.1",
            "0x00007ffff7aca192 in image_create(int) () from /usr/lib64/libhsa-ext-image64.so.1",
        ],
    )
    def test_a_crash_in_a_library_is_named(self, frame):
        found = answer(f"Thread 1 received signal SIGSEGV, Segmentation fault.\n{frame}")
        assert found.layer is not None
        assert found.layer.name == "hsa"
        assert "the program stops in libhsa-" in found.summary

    @every_row(
        "error",
        [
            "ModuleNotFoundError: No module named 'torch'",
            "AttributeError: module 'torch' has no attribute 'x'",
        ],
    )
    def test_no_build_of_torch_is_advised_without_the_gpu(self, error):
        assert "requirements.txt" not in answer(f"{RUN}{error}").action

    @every_row(
        "text",
        [
            f"{RUN}RuntimeError: HIP error: invalid device function",
            f"{RUN}ValueError: unsupported target: gfx1010",
            "rocBLAS error: Cannot read /x/rocblas/library/TensileLibrary.dat\n" + RUN + "KeyError: 'out'",
            "Segmentation fault (core dumped)\nsubprocess.CalledProcessError: exit status 139.",
            "NVIDIA GeForce GTX 1080 Ti\nAMD Radeon RX 7900 XT\nHIP error: out of memory",
        ],
    )
    def test_what_may_be_amd_s_is_not_sent_away(self, text):
        assert not answer(text, NAVI10).elsewhere

    def test_an_index_of_a_list_is_no_index_of_a_tensor(self):
        found = answer("Traceback (most recent call last):\nIndexError: list index out of range", NAVI10)
        assert found.causes[0].cause == "outside"

    def test_memory_that_is_full_keeps_its_cause_on_any_gpu(self):
        found = answer("NVIDIA GeForce RTX 3090\ntorch.OutOfMemoryError: CUDA out of memory.")
        assert found.elsewhere
        assert found.causes[0].cause == "vram-oom"

    @every_row("line", ["UserWarning: slow path", "[W1010 a.cpp:3] Warning: x", "WARNING: no fast attention"])
    def test_a_log_that_ends_in_a_warning(self, line):
        found = answer(f"loading\n{line}")
        assert found.causes[0].cause == "benign-warning"
        assert "If the program failed or stopped here, the log does not contain the reason" in found.action

    @pytest.mark.parametrize(
        "text",
        [
            "W: Possible missing firmware /lib/firmware/amdgpu/vangogh_toc.bin for module amdgpu",
            "x.py:99: UserWarning: Failed to import y.\n  warnings.warn('Failed to import y.')",
        ],
    )
    def test_what_programs_call_a_warning(self, text):
        assert answer(text).causes[0].cause == "benign-warning"

    def test_an_error_behind_a_bracket_is_an_error(self):
        text = "GeForce GTX 1070\nBest: 224 threads (3.4ms)Error: invalid device function\t/home/x/a.cu:90"
        assert answer(text).causes[0].cause == "outside"

    def test_a_traceback_after_a_warning_is_no_failure(self):
        absent = f"{RUN}ModuleNotFoundError: No module named 'flash_attn'"
        text = f"WARNING  Failed to load flash-attention:\n{absent}"
        assert not extract(of_text(text)).failed
        assert "cuda-only-extension" not in [each.cause for each in answer(text, NAVI10).causes]
        gone_on = f"{text}\nRuntimeError: HIP error: invalid device function"
        assert answer(gone_on, NAVI10).causes[0].cause == "arch-not-in-wheel"

    def test_the_kernel_s_warning_is_a_failure(self):
        text = "WARNING: CPU: 3 PID: 1 at drivers/gpu/drm/amd/x.c:715 dc_init+0x2cc/0x410 [amdgpu]"
        found = answer(text)
        assert found.layer.name == "driver"
        assert "benign-warning" not in [each.cause for each in found.causes]


class TestWhoseCode:
    @every_row(
        ("text", "layer"),
        [
            (
                "#1  0x00007f in miopen::solver::X () from /opt/rocm/lib/libMIOpen.so.1\nAborted",
                "miopen-exec",
            ),
            ("#1  0x00007f in rocr::core::f () from /opt/rocm/lib/libhsa-runtime64.so.1\nAborted", "hsa"),
            ("BUG: kernel NULL pointer dereference\nRIP: 0010:amdgpu_vm_fini+0x1a/0x60 [amdgpu]", "driver"),
        ],
    )
    def test_the_innermost_frame_decides_the_layer(self, text, layer):
        found = answer(text)
        assert found.layer.name == layer

    @every_row(
        ("path", "cause"),
        [
            ("/opt/app/libstdc++.so.6", "library-path"),
            ("/lib/x86_64-linux-gnu/libc.so.6", "rocm-package-wrong-os"),
        ],
    )
    def test_an_own_runtime_that_hides_the_system_s(self, path, cause):
        found = answer(
            f"ImportError: {path}: version `GLIBCXX_3.4.30' not found (required by /x/libMIOpen.so)"
        )
        assert found.causes[0].cause == cause

    @every_row(
        ("text", "cause"),
        [
            ("libopenblas.so.0: cannot open shared object file", "runtime-library-missing"),
            ("dso_loader.cc:130] Couldn't open CUDA library libMIOpen.so", "library-path"),
            ("OSError: libhipblas.so.1: cannot open shared object file", "runtime-library-missing"),
            ("ImportError: libamdhip64.so.6: cannot open shared object file", "library-path"),
            ("dlerror: /opt/rocm-3.1.0/lib/libamdocl64.so: cannot open shared object", "rocm-versions-mixed"),
            ("ImportError: /opt/rocm/lib/migraphx.so: undefined symbol: _Py_ZeroStruct",
             "python-package-conflict"),
            ("ptxas fatal : Value 'sm_110' is not defined for option 'gpu-name'", "python-package-conflict"),
            ("torchvision 0.15.2+rocm5.4.2 requires torch==2.0.1, but you have torch 2.0.0+cu118",
             "python-package-conflict"),
            (f"OSError: {SITE}/bitsandbytes/libbnb_cpu.so: cannot open shared object", "cuda-only-extension"),
        ],
    )  # fmt: skip
    def test_the_owner_of_a_library_that_is_not_found(self, text, cause):
        assert answer(text).causes[0].cause == cause

    @every_row(
        ("path", "layer"),
        [("/src/hipamd/hip_platform.cpp", "hip"), ("libhsakmt/a.c", "hsa"), ("rocm_smi.cc", "user-code")],
    )
    def test_the_source_of_an_assertion(self, path, layer):
        found = answer(f"{path}:665: void f(): Assertion `err == 0' failed.\nAborted (core dumped)")
        assert found.layer.name == layer

    @every_row(
        ("text", "says", "do"),
        [
            ("dpkg: error: trying to overwrite '/a', which is also in package amdgpu-dkms 1:5",
             "Two packages contain the same file", "apt remove amdgpu-dkms"),
            ("rocminfo: /dev/kfd read-write: Invalid argument", "/dev/kfd exists but rejects access",
             "/proc/devices"),
            ("amdgpu 0000:01:00.0: PSP firmware loading failed\namdgpu: Fatal error during GPU init",
             "the GPU's security processor loads no firmware", "vfio-pci"),
            ("pci 0000:c5:00.0: BAR 5 [mem size 0x80000]: can't assign; no space\nconsole lost",
             "too little address space", "Above 4G Decoding"),
            ("hashcat starting\nhiprtcCompileProgram(): HIPRTC_ERROR_COMPILATION\n"
             "error: unknown argument: '-fno-x'\n1 error generated when compiling for gfx1010.",
             "rejects a kernel of the program, not of MIOpen", "update the program"),
            ("'C:\\rocm\\bin\\clang++' is not recognized as an internal or external command,",
             "is not found", "HIP_CLANG_PATH"),
            ('OSError: [WinError 126] The specified module could not be found. Error loading "C:\\v\\lib\\'
             'torch_hip.dll" or one of its dependencies.', "torch_hip.dll does not load", "amdhip64_7.dll"),
            ("rocminfo: /dev/kfd read-write: Bad address", "rejects this process", "iommu"),
            ("aqlprofile API table load failed: HSA_STATUS_ERROR: A generic error", "The profiler does not",
             "hsa-amd-aqlprofile"),
            ("Error: HSA_STATUS_ERROR_INVALID_ISA (0x100f)\nQueue error: gfx906 (Out of VGPRs;)",
             "more registers or LDS", "__launch_bounds__"),
            ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 165888, "
             "Hardware limit: 163840.", "165,888 bytes of LDS", "num_stages"),
            ("A module that was compiled using NumPy 1.x cannot be run in\nImportError: cannot import name "
             "'_b' from 'ompl' (/x.py)", "built for NumPy 1", "numpy<2"),
            ("AMD arch: gfx1201\n!!! Exception during processing !!! No operator found for "
             "`memory_efficient_attention_forward`", "xformers was not built", "switch it off"),
            ("RuntimeError: cuFFT error: HIPFFT_EXEC_FAILED", "rocFFT fails (HIPFFT_EXEC_FAILED)",
             "the CPU"),
            ("CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version",
             "This build cannot use the GPU", "With an AMD GPU: "),
        ],
    )  # fmt: skip
    def test_the_answer_is_what_the_rule_found(self, text, says, do):
        found = answer(text)
        assert says in found.summary
        assert do in found.action

    @every_row(
        ("text", "cause"),
        [
            ("ROCm error: out of memory\n  current device: 0, in alloc at ggml-cuda.cu:420", "vram-oom"),
            ("ERROR: HIP kernel flash_attn has no device code compatible with HIP arch 1300.",
             "arch-not-in-wheel"),
            ("OSError: libtorch_cuda.so: cannot open shared object file", "cuda-only-extension"),
            ("amd/amdgpu/amdgpu_drv.c:2416:25: error: implicit declaration", "kernel-driver-mismatch"),
        ],
    )  # fmt: skip
    def test_what_stands_there_in_plain_words(self, text, cause):
        assert answer(text).causes[0].cause == cause

    @every_row(
        "text",
        [
            "Platform Name  AMD Accelerated Parallel Processing\nclCreateContext(): No devices found in "
            "platform",
            "UserWarning: HIP initialization: Unexpected error from hipGetDeviceCount(): "
            "hipErrorInvalidDevice",
        ],
    )
    def test_a_gpu_that_nobody_offers_is_no_mere_warning(self, text):
        assert answer(text).summary.startswith("Perhaps: Programs cannot reach the GPU")

    def test_a_crash_of_the_kernel_among_lines_of_the_driver(self):
        text = "amdgpu: Failed to map bo to gpuvm\nBUG: kernel NULL pointer dereference, address: 08"
        assert answer(text).causes[0].cause == "kernel-driver-regression"

    def test_a_kernel_module_that_does_not_compile(self):
        text = (
            "/var/tmp/amd.x/include/kcl/kcl_drm.h:67:53: error: passing argument 2 from incompatible pointer"
        )
        assert answer(text).causes[0].cause == "kernel-driver-mismatch"

    def test_an_extension_whose_operator_was_not_built(self):
        text = f'{RUN}  File "{SITE}/xformers/ops/fmha/dispatch.py", line 1, in f\nNotImplementedError: No'
        found = answer(
            f"{text} operator found for `x`\n`ckF` is not supported because:\n  operator wasn't built"
        )
        assert found.causes[0].cause == "cuda-only-extension"

    def test_a_build_that_calls_hip_and_stops_there_is_no_failure_of_the_build(self):
        text = "clr/hip_platform.cpp:665: void init(): Assertion `err == hipSuccess' failed."
        explained = answer(f"Building wheel for apex\n python: /usr/src/{text}\nerror: subprocess-exited")
        assert not explained.sure
        assert "A build" not in explained.summary

    @every_row(
        ("text", "cause", "layer"),
        [
            ("[ 9.1] amdgpu 0000:03:00.0: [gfxhub] page fault (src_id:0 ring:173 vmid:8 pasid:46)\n"
             "[ 9.2] amdgpu 0000:03:00.0: \t Faulty UTCL2 client ID: TCP (0x8)",
             "gpu-memory-fault-unexplained", "hsa"),
            ("RuntimeError: CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling x", None, "rocblas"),
            (f"OSError: {SITE}/apex/_C.so: undefined symbol: _Z3foo", "cuda-only-extension", "torch-build"),
            ("FileNotFoundError: Could not find module 'C:\\p\\Lib\\site-packages\\torchaudio\\lib\\x.pyd' "
             "(or one of its dependencies).", "python-package-conflict", "user-env"),
        ],
    )  # fmt: skip
    def test_whose_the_last_error_is(self, text, cause, layer):
        explained = answer(text)
        assert explained.layer is not None
        assert explained.layer.name == layer
        assert cause is None or explained.causes[0].cause == cause

    def test_a_part_of_torch_for_cuda_beside_torch_for_rocm(self):
        text = "OSError: libtorch_cuda.so: cannot open shared object file: No such file or directory"
        assert answer(text, NAVI10).causes[0].cause == "cuda-only-extension"
        assert "`rocmprobe install`" in answer(text).action

    def test_what_pip_says_is_not_the_failure_if_something_fails_after_it(self):
        pip = (
            "ERROR: pip's dependency resolver does not currently take into account all the packages\n"
            "torchvision 0.11.2 requires torch==1.10.1, but you have torch 1.9.0 which is incompatible.\n"
        )
        assert answer(pip).causes[0].cause == "python-package-conflict"
        then = answer(f"{pip}ERROR: Error loading audio file: failed to open file a.wav")
        assert "python-package-conflict" not in [each.cause for each in then.causes]
        assert "Error loading audio file" in then.summary
        assert not then.sure

    def test_an_extension_of_another_release(self):
        text = f'{RUN}  File "{SITE}/flash_attn/a.py", line 1, in f\nRuntimeError: HIP Function Failed'
        first = answer(text, Facts(torch="2.4.1+rocm6.0", rocm="6.4.0", true_gfx="gfx1100")).causes[0]
        assert first.cause == "rocm-versions-mixed"

    def test_the_soname_of_another_release(self):
        text = "ImportError: libamdhip64.so.6: cannot open shared object file: No such file or directory"
        other = answer(text, Facts(rocm="7.2")).causes[0]
        assert any("ROCm 6, but ROCm 7 is installed" in line for line in other.evidence)
        assert not any(
            "is installed" in line
            for each in answer(text, Facts(rocm="6.4")).causes
            for line in each.evidence
        )


class TestArithmetic:
    @every_row(
        ("numbers", "says"),
        [
            ("GPU 0 has a total capacity of 16.00 GiB of which 12.00 GiB is free. 4.00 GiB allowed; Of the",
             "limits itself to 4.0 GiB"),
            ("GPU 0 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Of the allocated memory "
             "3.00 GiB is allocated by PyTorch, and 0.10 GiB is reserved by PyTorch but unallocated.",
             "other processes use 11.9 GiB of 16.0 GiB"),
            ("GPU 0 has a total capacity of 1.00 GiB of which 0.50 GiB is free.", "of 2.0 GiB exceeds"),
        ],
    )  # fmt: skip
    def test_what_took_the_memory(self, numbers, says):
        first = answer(
            f"torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. {numbers}"
        ).causes[0]
        assert first.cause == "vram-oom"
        assert any(says in line for line in first.evidence)

    def test_the_advice_follows_the_size_of_the_gpu(self):
        small = "HIP out of memory. Tried to allocate 72.00 MiB. GPU 0 has a total capacty of 512.00 MiB"
        large = "HIP out of memory. Tried to allocate 66.54 GiB.\nGPU 0 has a total capacity of 96.00 GiB"
        of_apu = Facts(gpu="Radeon 8060S", true_gfx="gfx1151")
        assert "The GPU has 0.5 GiB of dedicated memory" in answer(small).action
        assert "BIOS" not in answer(large, of_apu).action

    def test_much_is_free_and_little_was_refused(self):
        text = (
            "torch.OutOfMemoryError: HIP out of memory. \nTried to allocate 26.00 MiB. GPU 0 has a total "
            "capacity of 15.92 GiB of which 13.60 GiB is free."
        )
        assert "13.6 GiB are free, but 26 MiB were refused" in " ".join(answer(text).causes[0].evidence)

    def test_a_large_number_that_no_error_names_is_no_overflow(self):
        text = "Applied providers with options: {'gpu_mem_limit': '18446744073709551615', 'device_id': '0'}"
        assert "miopen-size-limit" not in [each.cause for each in answer(text).causes]
        failed = "RuntimeError: Storage size calculation overflowed with sizes=[18446744073709551615]"
        assert answer(failed).causes[0].cause == "miopen-size-limit"

    def test_lds(self):
        text = "OutOfResources: out of resource: shared memory, Required: 98304, Hardware limit: 65536"
        first = answer(text).causes[0]
        assert first.cause == "triton-compile-failure"
        assert any("98,304 bytes of LDS" in line for line in first.evidence)


class TestWhatIsAskedAndAdvised:
    def test_a_variable_that_is_set_is_not_advised(self):
        advice = "Run `export MIOPEN_FIND_MODE=1` first. Then try a smaller batch."
        assert without_what_is_set(advice, {}) == advice
        assert without_what_is_set(advice, {"MIOPEN_FIND_MODE": "2"}) == advice
        set_already = without_what_is_set(advice, {"MIOPEN_FIND_MODE": "1"})
        assert (
            set_already
            == "MIOPEN_FIND_MODE=1 is already set and does not help here. Then try a smaller batch."
        )

    @every_row(
        ("text", "says", "do"),
        [
            ("epoch 1 of 300, loss 0.31", "no line of this log reports a failure", "2>&1"),
            (RUN, "ends inside a traceback", "the last line names the error"),
            (
                f'{RUN}  File "{SITE}/foo/a.py", line 1, in f\nRuntimeError: no gpu today',
                "(RuntimeError: no gpu today)",
                "tracker of foo",
            ),
        ],
    )
    def test_without_a_cause_the_answer_says_what_the_log_lacks(self, text, says, do):
        found = answer(text)
        assert found.summary.startswith("Not enough evidence: ")
        assert says in found.summary
        assert do in found.action

    def test_a_cause_that_little_speaks_for_is_not_the_answer(self):
        explained = answer("AttributeError: module 'torch._C' has no attribute '_CudaDeviceProperties'")
        assert explained.causes[0].cause == "wrong-torch-build"
        assert explained.causes[0].score < 0.6
        assert explained.summary.startswith(
            "Not enough evidence: rocmprobe does not know the error in line 1"
        )
        assert "wheel" not in explained.action

    def test_what_the_log_answers_is_not_asked(self):
        question = "Run `ls -l /dev/kfd; id -nG`: a group that you lack is a matter of rights."
        shown = "crw-rw---- 1 root render 235, 0 Nov 1 /dev/kfd\nuid=1000(x) gid=1000(x) groups=1000(x)"
        assert answers(extract(of_text(shown)), question)
        assert not answers(extract(of_text(shown.splitlines()[0])), question)
        assert not answers(extract(of_text(shown)), "Run `rocmprobe run --only solver`.")

    def test_facts_alone_rank_a_cause_of_a_failure(self):
        text = 'Traceback (most recent call last):\n  File "a.py", line 3, in f'
        risky = Facts(true_gfx="gfx1010", torch="2.9.1+rocm6.4", exit="exception")
        assert "no official wheel of this version has code for the chip" in answer(text, risky).summary
        first = answer(f"{text}\nError: it failed", risky).causes[0]
        assert (first.cause, first.score < 0.7) == ("arch-not-in-wheel", True)

    def test_the_list_of_a_torch_is_a_fact(self):
        printed = ">>> torch.cuda.get_arch_list()\n['gfx900', 'gfx1010']"
        text = f"{printed}\nRuntimeError: HIP error: invalid device function"
        names = [each.cause for each in answer(text, Facts(true_gfx="gfx1010")).causes]
        assert "arch-not-in-wheel" not in names


class TestSayingLess:
    """A cause that the evidence does not prove is a guess, and a check comes before its cure."""

    def test_a_guess_is_called_one_and_its_check_comes_first(self):
        found = answer("RuntimeError: HIP error: out of memory")
        assert found.summary.startswith("Perhaps: ")
        assert found.action.index("First check: ") < found.action.index("Only if it is so: ")

    def test_a_list_of_loaded_libraries_accuses_none(self):
        found = answer(
            "Module libamd_comgr.so.2 from rpm comgr-18-2.fc40.x86_64\nSignal: 11 (SEGV)\n"
            "Program terminated with signal SIGSEGV, Segmentation fault."
        )
        assert "comgr" not in found.summary

    def test_a_layer_is_not_blamed_without_a_line(self):
        found = answer("ERROR: GPU[0]   : Unable to set Power OverDrive to 500W")
        assert found.summary.startswith("Not enough evidence")

    def test_a_memory_fault_of_no_process_is_not_a_kernel_s(self):
        found = answer(
            "amdgpu 0000:33:00.0: [gfxhub] page fault (src_id:0 ring:217 vmid:0 pasid:0, for process  pid 0 "
            "thread  pid 0)\namdgpu 0000:33:00.0: Faulty UTCL2 client ID: CPC (0x5)"
        )
        assert "not a program's kernel" in found.summary

    def test_a_fact_about_a_library_that_is_only_slower_is_no_reason(self):
        found = answer("RuntimeError: HIP error: x", Facts(true_gfx="gfx1151", rocm="7.12"))
        assert "databases" not in found.summary

    @every_row(
        ("text", "words"),
        [
            ("DKMS make.log for amdgpu-6.7.0 for kernel 6.6.13+bpo-amd64\nmake[1]: *** [Makefile:52] Error 2",
             "Kernel driver and ROCm do not match"),
            ("CMake Error at /opt/rocm/lib/cmake/hip/hip-config.cmake:80 (message):\n  but not all the files "
             "it references.", "link with the expected name"),
            ("Can't locate File/Which.pm in @INC (you may need to install the File::Which module)",
             "libfile-which-perl"),
            ("gcc: fatal error: cannot execute 'cc1plus': execvp: No such file or directory",
             "build-essential"),
            ("Error: Failed to download metadata for repo 'x': Curl error (6): Couldn't resolve host name",
             "network"),
            ("E: Failed to fetch http://a/Packages.gz  File has unexpected size. Mirror sync in progress?",
             "are inconsistent"),
            ("RuntimeError: HIP error: an illegal memory access was encountered\nCompile with "
             "`TORCH_USE_HIP_DSA` to enable device-side assertions.", "HIP"),
            ("ImportError: DLL load failed while importing _C: An Application Control policy has blocked "
             "this file.", "policy"),
        ],
    )  # fmt: skip
    def test_the_words_of_one_error_are_not_taken_for_another(self, text, words):
        found = answer(text)
        assert words in f"{found.summary} {found.action}"
        assert "index" not in found.action

    def test_the_cure_keeps_its_condition_where_the_check_is_left_out(self):
        advice = without_torch(
            "First check: Run `python -c 'import torch'`. Only if it is so: Build it anew."
        )
        assert advice == "If this is the reason: Build it anew."


def test_an_override_is_a_fact_and_not_a_word_of_the_log() -> None:
    text = (
        ":0:rocdevice.cpp :2673: 1 us: 2: [tid:0x7f] Device::callbackQueue aborting with error : "
        "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory beyond the largest "
        "legal address. code: 0x29"
    )
    assert explain(of_text(text), Facts(true_gfx="gfx908")).causes[0].cause != "override-isa-mismatch"


def test_an_answer_for_amd_alone_says_so_if_the_log_names_no_gpu() -> None:
    crash = "CUDA error: no kernel image is available for execution on the device"
    question = "With an NVIDIA GPU, search for the message"
    unnamed = explain(of_text(crash), Facts())
    assert question in unnamed.action
    assert question not in explain(of_text(crash), Facts(true_gfx="gfx1010", gpu="RX 5700 XT")).action


def test_a_check_comes_before_advice_that_is_not_certain_and_is_not_asked_twice() -> None:
    found = explain(
        of_text(
            "ERROR: pip's dependency resolver does not currently take into account all the packages\n"
            "torchvision 0.11.2 requires torch==1.10.1, but you have torch 1.9.0 which is incompatible.\n"
        ),
        Facts(),
    )
    assert found.summary.startswith("Perhaps: ")
    assert found.action.startswith("First check: ")
    assert "Only if it is so: " in found.action
    assert found.decide is None
