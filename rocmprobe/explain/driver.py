"""Rules about the kernel driver: start of the GPU, refused requests, and crashes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocmprobe.explain.inference import Inference, LogContext

_KERNEL_ASSERTION = re.compile(r"WARNING: CPU: \d+ PID: \d+ at \S*drivers/gpu/drm/(?:amd|ttm|scheduler)")


def kernel_assertion(context: LogContext) -> Iterator[Inference]:
    """Infer a defect of the kernel driver from a failed assertion in the driver.

    Infer nothing if the log shows a failure with another cause.

    Source: Linux, WARN_ON, which prints the source file of the assertion.
    """
    if context.fatal_besides("kernel-driver-regression"):
        return
    for line in context.lines:
        if _KERNEL_ASSERTION.search(line.text):
            says = f"line {line.number}: an assertion of the kernel driver failed"
            yield Inference(says, {"kernel-driver-regression": 2.4}, "driver")
            return


_UNFIT_MODULE = re.compile(
    r"(?:amdgpu|amdkfd|amdkcl|amdttm)\w*: (?:Unknown symbol|disagrees about version of symbol)"
    r"|could not insert '?amd(?:gpu|kfd)|modprobe: (?:ERROR|FATAL)"
)


def unfit_module(context: LogContext) -> Iterator[Inference]:
    """Infer that the kernel driver's module was built for another kernel, or lacks a module that it needs.

    Source: Linux kernel/module/main.c.
    """
    for line in context.lines:
        if _UNFIT_MODULE.search(line.text):
            says = f"line {line.number}: the running kernel cannot load its amdgpu module"
            remedy = (
                "The module needs functions that this kernel lacks. Restart after updates. Install "
                "linux-modules-extra for `uname -r` (cloud kernels omit it). With amdgpu-dkms, run `sudo "
                "dkms autoinstall`, or remove it and use the kernel's own driver."
            )
            points = {"kernel-driver-mismatch": 4.6}
            yield Inference(says, points, "driver", remedy=remedy)
            return


_OOPS = re.compile(
    r"BUG: (?:kernel NULL pointer|unable to handle)|Oops: \d|general protection fault.*PREEMPT"
)
_FROM_DRIVER = re.compile(r"\bamdgpu\b|\bamdkfd\b|\[drm")
#: A message of the driver belongs to a crash of the kernel if it is at most this many lines before the crash,
#: or anywhere after the crash.
_BEFORE_OOPS = 6


def kernel_crash(context: LogContext) -> Iterator[Inference]:
    """Infer a defect of the kernel driver from a kernel crash, if the driver wrote messages near the crash.

    Source: Linux, arch/x86/mm/fault.c.
    """
    for place, line in enumerate(context.lines):
        if _OOPS.search(line.text):
            around = context.lines[max(0, place - _BEFORE_OOPS) : place] + context.lines[place + 1 :]
            if any(_FROM_DRIVER.search(each.text) for each in around):
                says = f"line {line.number}: the kernel itself crashed, in or after code of the GPU driver"
                yield Inference(says, {"kernel-driver-regression": 3.6}, "driver")
            return


_INIT_FAILED = re.compile(
    r"Fatal error during GPU init|probe of [\w:.]+ failed with error|hw_init of IP block"
)
#: Steps at which the driver can fail to start a GPU, and what to check. Source: Linux
#: drivers/gpu/drm/amd/amdgpu: amdgpu_device.c, amdgpu_discovery.c, amdgpu_psp.c, amdgpu_bios.c;
#: drivers/pci/setup-res.c.
_INIT_STEPS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    (
        "the mainboard gives the GPU too little address space",
        re.compile(r"BAR \d.*(?:can't assign|failed to assign|no space)|probe of \S+ failed with error -12"),
        "Update the BIOS, and switch on its Above 4G Decoding and Resizable BAR. With many cards, try "
        "fewer cards. The kernel option `pci=realloc` may help.",
    ),
    (
        "the driver cannot read the description that the card stores",
        re.compile(r"discovery.*(?:[Ff]ail|[Ee]rror|-\d+)|[Ff]ail.*discovery"),
        "Unplug the machine for a minute. If the error stays, update kernel and linux-firmware, then BIOS "
        "and the card's firmware. If nothing helps, suspect the card.",
    ),
    (
        "the GPU's security processor loads no firmware",
        re.compile(r"\b(?:PSP|psp)\b.*(?:[Ff]ail|[Ee]rror|[Tt]ime)|[Ff]ail.*\b(?:PSP|psp)\b"),
        "Switch the machine off and on, then update linux-firmware. In a virtual machine, the host must "
        "never have used the GPU: bind it to vfio-pci at boot, or use a container.",
    ),
    (
        "a firmware file is missing",
        re.compile(r"Direct firmware load for \S+ failed|Failed to load firmware|firmware: failed to load"),
        "Install or update linux-firmware (on Debian firmware-amd-graphics), rebuild the initramfs, and "
        "restart.",
    ),
    (
        "the driver finds no video BIOS",
        re.compile(r"VBIOS|Unable to locate a BIOS ROM"),
        "In a virtual machine, give the GPU's ROM file to the guest. Otherwise, reseat the card and "
        "update the BIOS.",
    ),
)  # fmt: skip


def gpu_start(context: LogContext) -> Iterator[Inference]:
    """Infer at which step the kernel driver could not start the GPU.

    Source: the driver's messages (``_INIT_STEPS``).
    """
    starts = next((line for line in context.lines if _INIT_FAILED.search(line.text)), None)
    for says, pattern, remedy in _INIT_STEPS:
        line = next((line for line in context.lines if pattern.search(line.text)), None)
        if line and (starts or "address space" in says):
            yield Inference(
                f"line {line.number}: the driver cannot start the GPU: {says}",
                {"kfd-missing": 5.0, "kernel-driver-too-old": -1.5}, "driver", remedy=remedy,
            )  # fmt: skip
            return


#: Errors that a program can get when it opens /dev/kfd, with their meanings and what to do.
#: Source: Linux drivers/gpu/drm/amd/amdkfd/kfd_chardev.c and kfd_process.c.
_KFD_ERRORS: tuple[tuple[re.Pattern[str], str, dict[str, float], str], ...] = (
    (
        re.compile(r"/dev/kfd.{0,80}(?:Invalid argument|EINVAL)"),
        "/dev/kfd exists but rejects access: its device number is not that of the driver, or the driver "
        "has no GPU",
        {"kfd-missing": 1.0},
        "Compare the first number of `ls -l /dev/kfd` with the line kfd of `cat /proc/devices` on the host. "
        "In an LXC or Proxmox container, the allowed number must be the same. Then run `sudo dmesg | grep "
        "-i kfd` on the host. If amdxdna (the NPU's module) is loaded, run `sudo modprobe -r amdxdna` as a "
        "test: on some kernels it blocks /dev/kfd.",
    ),
    (
        re.compile(r"/dev/kfd.{0,80}(?:Bad address|EFAULT)"),
        "/dev/kfd exists, but the driver (not permissions or memory) rejects this process",
        {"gpu-unsupported-by-kfd": 3.6},
        "Run `sudo dmesg | grep -iE 'kfd|iommu|amdgpu'` to see the driver's own reason. Known cases are "
        "integrated GPUs that ROCm never supported: switch the IOMMU on in the BIOS, try a newer kernel, or "
        "use a graphics card.",
    ),
    (
        re.compile(r"/dev/kfd.{0,80}(?:Cannot allocate memory|ENOMEM)"),
        "/dev/kfd exists, but the driver offers no GPU; main memory is not the cause",
        {"gpu-unsupported-by-kfd": 0.4},
        "Run `sudo dmesg | grep -iE 'kfd|amdgpu'`. For \"PCI rejects atomics\" use another slot, for "
        "\"missing in supported_devices\" a newer kernel. \"Fatal error during GPU init\" names the step "
        "that failed.",
    ),
)  # fmt: skip
#: Reasons that the driver itself logs, so nothing needs to be inferred.
_KFD_SAYS_WHY = re.compile(r"supported_devices|rejects atomics|not supported on this ASIC")


def kfd_error(context: LogContext) -> Iterator[Inference]:
    """Infer from a failed attempt to open /dev/kfd why programs cannot use the GPU.

    Source: Linux drivers/gpu/drm/amd/amdkfd/kfd_chardev.c and kfd_process.c.
    """
    if any(_KFD_SAYS_WHY.search(line.text) for line in context.lines):
        return
    for line in context.lines:
        for pattern, says, points, remedy in _KFD_ERRORS:
            if pattern.search(line.text):
                yield Inference(f"line {line.number}: {says}", points, "driver", remedy=remedy)
                return


_OF_NO_PROCESS = re.compile(r"page fault .{0,80}for process\s+pid 0\b")
#: Parts of a GPU through which the kernels of a program read and write. The runtime and the driver control
#: the other parts: the command processor and the copy engines.
_OF_KERNELS = re.compile(r"Faulty UTCL2 client ID: (?:TCP|TCC|SQC|TA|CB|DB)\b")


def page_fault(context: LogContext) -> Iterator[Inference]:
    """Infer whether a page fault was caused by the driver or firmware, or by a kernel of the program.

    A page fault of no process (pid 0) comes from the driver or firmware. A page fault in a hardware unit
    (UTCL2 client) that runs kernels comes from a kernel of the program.

    Source: Linux drivers/gpu/drm/amd/amdgpu/gmc_v9_0.c and gmc_v10_0.c, the names of the clients.
    """
    # After a hang, the reset of the GPU can cause page faults, too.
    if any(hit.signature.shows == "hang" for hit in context.hits):
        return
    for line in context.lines:
        if _OF_NO_PROCESS.search(line.text):
            says = f"line {line.number}: the page fault belongs to no process"
            yield Inference(says, {"gpu-memory-fault-unexplained": -8.0}, "driver")
            return
        if _OF_KERNELS.search(line.text):
            says = f"line {line.number}: a kernel of the program caused the page fault, not the driver"
            yield Inference(says, {"gpu-memory-fault-unexplained": 3.0}, "hsa")
            return


_NOTHING_SEEN = re.compile(
    r"No devices found in platform"
    r"|(?:HIP|CUDA) initialization: .{0,20}(?:Unexpected error|CUDA unknown error)"
    r"|^Number of devices +0$"
)


def nothing_seen(context: LogContext) -> Iterator[Inference]:
    """Infer that ROCm works but lists no GPU.

    Source: clinfo; PyTorch c10/cuda/CUDAFunctions.cpp, which warns that the program continues without a GPU.
    """
    for line in context.lines:
        if context.is_amd and _NOTHING_SEEN.search(line.text):
            says = f"line {line.number}: ROCm works but lists no GPU for this program"
            points = {"kfd-missing": 3.4, "kfd-permission": 3.0, "benign-warning": -4.0}
            yield Inference(says, points, "driver")
            return


def as_root(context: LogContext) -> Iterator[Inference]:
    """Infer that the user lacks rights if the log says that the program works as root.

    Source: Linux, permissions of /dev/kfd and /dev/dri.
    """
    if context.structure.as_root:
        yield Inference("the log says that it works as root", {"kfd-permission": 4.6}, "permissions")


def kernel_errno(context: LogContext) -> Iterator[Inference]:
    """Name the error number that the kernel driver reports.

    Source: Linux, errno.h; drivers/gpu/drm/amd.
    """
    for what, number in context.structure.errnos[:1]:
        meaning = {-12: "no memory", -22: "invalid argument", -62: "timer expired", -110: "timed out"}
        says = f"the kernel driver reports {number} ({meaning.get(number, 'an error')}) from {what}"
        yield Inference(says, {"gpu-firmware-bug": 0.6} if number in (-62, -110) else {}, "driver")
