"""Logs in which nothing of ROCm's failed are not called failures of it, whatever words they hold."""

from __future__ import annotations

from rows import every_row

from rocmprobe.explain.explain import explain
from rocmprobe.explain.log_facts import Facts, facts_in, merge_and_derive
from rocmprobe.text.log import of_text

NOTHING = Facts()
OVERRIDDEN = Facts(
    true_gfx="gfx1010",
    effective_gfx="gfx1030",
    torch="2.3.0+rocm6.0",
    env={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"},
)
#: What needs nobody's help, or is nobody's business here.
HARMLESS = {"benign-warning", "unknown", "nothing"}

TRAINED = "Epoch 1 of 3, loss 0.31\nEpoch 2 of 3, loss 0.28\nTraining finished"
LOGS = {
    "a training that ends well": (TRAINED, NOTHING),
    "a training that ends well under an override": (TRAINED, OVERRIDDEN),
    "nothing at all under an override": ("", OVERRIDDEN),
    "a keyboard interrupt": ("Traceback (most recent call last):\nKeyboardInterrupt", NOTHING),
    "an NVIDIA machine": ("PyTorch version: 2.1.0+cu118\nGPU 0: NVIDIA GeForce RTX 3090", NOTHING),
    "a CPU build on a Mac": ("torch 2.1.0\nmacOS 14.1\nUsing device: mps\nEpoch 1, loss 0.2", NOTHING),
    "a build of llama.cpp": (
        "[ 12%] Building CXX object src/CMakeFiles/llama.dir/llama.cpp.o\n[100%] Built target llama-cli",
        NOTHING,
    ),
    "a build with ninja": ("[1/4] Building HIP object a.o\n[4/4] Linking CXX library b.so", NOTHING),
    "a warning of the compiler": ("1 warning generated when compiling for gfx1010.\nPASSED", NOTHING),
    "a healthy boot": (
        "[    0.12] mce: CPU1: Thermal monitoring enabled (TM1)\n"
        "[    3.40] amdgpu 0000:03:00.0: amdgpu: PCIE atomic ops is not supported\n"
        "[    3.50] kfd kfd: amdgpu: added device 1002:731f",
        NOTHING,
    ),
    "parameters of the driver": ("parm: gpu_recovery:Enable GPU recovery mechanism, (1 = enable)", NOTHING),
    "a list of packages": ("ii  amdgpu-dkms 6.3.6 all amdgpu driver in DKMS format", NOTHING),
    "a database of another program": ("sqlite3.OperationalError: unable to open database file", NOTHING),
    "a value that no number is": ("terminate called\n  what():  stoi", NOTHING),
    "torchvision without libjpeg": (
        "UserWarning: Failed to load image Python extension: '/x/image.so: undefined symbol: _ZN3c10'",
        NOTHING,
    ),
    "numbers that agree": ("max abs diff: 1.2e-07\n12 passed in 3.4s", NOTHING),
    "a slow image processor": ("Using a slow image processor, which is very slow", NOTHING),
    "a kernel that works": ("works on Linux 6.8", NOTHING),
    "TensorFlow without CUDA": (
        "Could not load dynamic library 'libcudart.so.11.0'; dlerror: cannot open shared object file\n"
        "Ignore above cudart dlerror if you do not have a GPU set up on your machine.\nEpoch 1/5",
        NOTHING,
    ),
    "an option not there": ("UserWarning: expandable_segments not supported on this platform", NOTHING),
}  # fmt: skip


@every_row(("text", "facts"), LOGS.values())
def test_it_is_called_no_failure(text, facts):
    log = of_text(text)
    found = explain(log, merge_and_derive(facts, facts_in(log))).causes
    assert (found[0].cause if found else "nothing") in HARMLESS


def test_memory_that_is_full_is_told_on_any_vendor_s_gpu():
    log = of_text("torch 2.1.0+cu118\nNVIDIA GeForce RTX 3090\ntorch.OutOfMemoryError: CUDA out of memory.")
    assert explain(log, facts_in(log)).causes[0].cause == "vram-oom"
