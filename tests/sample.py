"""Realistic results, built by hand: a simulated RX 5600 XT, and a healthy CPU."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from runs import named_machine

from rocmprobe.model.changes import Change, Changes, Expected
from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import (
    DIRECTIONS,
    RUNGS,
    SCHEMA_VERSION,
    Attempt,
    Configuration,
    Costs,
    Fact,
    Finding,
    Gpu,
    Machine,
    Outcome,
    Recommendation,
    Results,
    Setting,
    SettingCost,
    Trial,
)
from rocmprobe.model.results_file import to_json
from rocmprobe.simulate.machines import load_machine

PROBLEMS = tuple(
    parse_problem(line)
    for line in (
        "conv2d-fp32-n2-c16-i28x28-k32-f3x3-p1-bias",
        "conv2d-fp32-n2-c64-i14x14-k64-f1x1",
        "conv2d-fp16-n2-c16-i28x28-k32-f3x3-p1",
        "conv2d-fp32-n2-c96-i28x28-k96-f3x3-p1-g96",
        "conv3d-fp32-n1-c8-i8x28x28-k16-f3x3x3-p1",
    )
)
DEFAULT = Setting("default", "PyTorch as it comes, with empty databases and caches of its own", "native")
GEMM_ONLY = Setting(
    "gemm-only",
    "MIOpen's im2col and rocBLAS only",
    "native-with-settings",
    env={"MIOPEN_DEBUG_CONV_DIRECT": "0", "MIOPEN_DEBUG_CONV_WINOGRAD": "0"},
)
VENDOR_OFF = Setting(
    "vendor-off", "PyTorch's own kernels instead of MIOpen", "vendor-off", vendor_library=False
)
BYPASS = Setting("bypass", "rocmprobe's GEMM convolution instead of MIOpen", "bypass", bypass=True)

STATUS = "RuntimeError: miopenStatusUnknownError"
LOG = (
    "MIOpen(HIP): Warning [ForwardConvolution] no solver left\n"
    "MIOpen Error: /MIOpen/src/ocl/convolutionocl.cpp:518: Forward Convolution cannot be executed due to "
    "incorrect params\n"
)
ENDS = ("", "_min", "_max")
CONDITIONS = {
    "before": {"core_clock_mhz": 800.0, "temperature_edge_c": 41.0},
    "after": {"core_clock_mhz": 1560.0, "temperature_edge_c": 63.0},
}


def fact(value: Any, source: str) -> Fact:
    return Fact(value, source)


def rdna1_machine() -> Machine:
    node = "/sys/class/kfd/kfd/topology/nodes/1/properties"
    return Machine(
        gpus=(
            Gpu(
                native_isa=fact("gfx1010", f"{node} gfx_target_version"),
                effective_isa=fact("gfx1030", "HSA_OVERRIDE_GFX_VERSION"),
                name=fact("AMD Radeon RX 5600 XT", "amdgpu.ids 731F:CA"),
                vendor=fact("amd", "PCI vendor 0x1002"),
                pci_id=fact("0x731f", f"{node} device_id"),
                revision=fact("0xca", "PCI configuration space"),
                cus=fact(36, f"{node} simd_count"),
                vram_bytes=fact(6425673728, "mem_banks/0/properties"),
            ),
        ),
        facts={
            "kernel.release": fact("5.15.0-56-generic", "/proc/sys/kernel/osrelease"),
            "os.name": fact("Ubuntu 22.04.1 LTS", "/etc/os-release PRETTY_NAME"),
            "rocm.version": fact("5.2.0", "/opt/rocm/.info/version"),
            "hip.version": fact("5.2.21151-afdc89f8", "torch/version.py"),
            "miopen.version": fact("2.17.0", "torch/lib/libMIOpen.so"),
            "torch.version": fact("1.13.1+rocm5.2", "torch/version.py"),
            "torch.kind": fact("rocm", "torch/version.py"),
            "python.version": fact("3.10.6", "the interpreter"),
        },
        variables={"HSA_OVERRIDE_GFX_VERSION": fact("10.3.0", "environment")},
    )


def outcome(
    setting: str,
    check: str,
    rung: str,
    state: str,
    *,
    problem: Optional[Problem] = None,
    direction: Optional[str] = None,
    device: str = "cuda:0",
    isa: tuple[Optional[str], Optional[str]] = ("gfx1010", "gfx1030"),
    message: str = "",
    seconds: float = 0.04,
    **rest: Any,
) -> Outcome:
    subject = problem.text if problem else rung
    name = "/".join(part for part in (device, setting, check, subject, direction) if part)
    trial = f"{device}/{setting}"
    tried = state not in ("blocked", "n/a", "skipped")
    times = 2 if state in ("error", "wrong", "crash") else 1
    return Outcome(
        id=name,
        device=device,
        setting=setting,
        check=check,
        rung=rung,
        state=state,
        trial=trial,
        native_isa=isa[0],
        effective_isa=isa[1],
        problem=problem.text if problem else None,
        direction=direction,
        dtype=problem.dtype if problem else "float32",
        attempts=(Attempt(state, trial, message, seconds),) * times if tried else (),
        evidence=rest.pop("evidence", (message,) if message else ()),
        **rest,
    )


def numerics(position: int) -> dict[str, Any]:
    return {
        "rms_range": 1.4e-8 * (position + 1),
        "rms_range_limit": 1e-6,
        "max_ratio": 2.1e-7 * (position + 2),
        "max_ratio_limit": 1e-5,
        "non_finite": 0,
        "exact": True,
        "exact_demanded": True,
    }


def _broken(setting: str) -> list[Outcome]:
    """A MIOpen setting on the dead card: each convolution fails, what needs one is blocked."""
    found = []
    for problem in PROBLEMS:
        for direction in DIRECTIONS:
            found.append(
                outcome(
                    setting, "convolution", "conv", "error", problem=problem, direction=direction,
                    message=STATUS, evidence=(STATUS, *LOG.splitlines()), failure="miopen-no-solver",
                )
            )  # fmt: skip
        found.append(
            outcome(
                setting, "throughput", "conv", "blocked", problem=problem, message="convolution fails here"
            )
        )
    return found


def _working(
    setting: str, factor: float, device: str = "cuda:0", isa: Any = ("gfx1010", "gfx1030")
) -> list[Outcome]:
    found = []
    for position, problem in enumerate(PROBLEMS):
        slow = setting == "vendor-off" and "g96" in problem.text
        half = device == "cpu" and problem.dtype == "float16"
        for direction in DIRECTIONS:
            state = "n/a" if half else "slow" if slow else "pass"
            found.append(
                outcome(
                    setting, "convolution", "conv", state, problem=problem, direction=direction,
                    device=device, isa=isa, numerics={} if half else numerics(position),
                    seconds=0.02 * factor,
                    message="no fp16 convolution on a CPU" if half else "",
                    solver="Im2ColGemm" if setting == "bypass" else None,
                )
            )  # fmt: skip
        if not half:
            took = 2.3e-4 * (position + 1) * factor
            found.append(
                outcome(
                    setting, "throughput", "conv", "pass", problem=problem, device=device, isa=isa,
                    timings=throughput(took, naive=setting == "bypass"), conditions=CONDITIONS,
                )
            )  # fmt: skip
            first = {f"{kind}_first_call{end}": took * 9 for kind in ("cold", "warm") for end in ENDS}
            found.append(
                outcome(
                    setting, "start-up", "conv", "pass", problem=problem, device=device, isa=isa,
                    timings={**first, "cold_starts": 3, "warm_starts": 3, "steady": took},
                )
            )  # fmt: skip
    return found


def throughput(took: float, naive: bool = False, **others: float) -> dict[str, float]:
    """Timings of that check where forward takes ``took`` seconds; ``others`` are medians, too."""
    medians = {"fwd": took, "bwd_data": took * 1.1, "bwd_weights": took * 1.2, "fwd_bwd": took * 3.1}
    if naive:
        medians.update({f"naive_{name}": 4 * median for name, median in medians.items()})
    medians.update({"gemm": 0.01, "copy": 0.02, **others})
    spread = {
        f"{name}{end}": median * factor
        for name, median in medians.items()
        for end, factor in (("", 1.0), ("_p10", 0.98), ("_p90", 1.04))
    }
    repeats = {f"{name}_repeats": 9 for name in medians}
    return {**spread, **repeats, "gemm_flops": 2.0 * 2048**3, "copy_bytes": 2.0 * 2**28}


def _ladder(device: str, isa: Any, conv_fails: bool) -> list[Outcome]:
    found = []
    for rung in RUNGS:
        if rung == "conv":
            continue
        state = "error" if conv_fails and rung == "batch-norm" else "pass"
        state = "blocked" if conv_fails and rung == "train" else state
        message = {"error": STATUS, "blocked": "needs rung conv, which fails"}.get(state, "")
        found.append(
            outcome("default", "ladder", rung, state, device=device, isa=isa, message=message, seconds=0.9)
        )
    return found


def _memory(setting: str, device: str = "cuda:0") -> list[Outcome]:
    return [
        outcome(
            setting, "memory", "conv", "pass", problem=problem, device=device,
            memory={"peak_bytes": 3 << 20, "predicted_bytes": 5 << 19, "saved_bytes": 0},
        )
        for problem in PROBLEMS[:2]
    ]  # fmt: skip


def _trial(setting: str, device: str = "cuda:0", log: str = "") -> Trial:
    return Trial(f"{device}/{setting}", device, setting, "forkserver", "0", log=log, seconds=14.5)


def _results(**changes: Any) -> Results:
    base = Results(
        schema_version=SCHEMA_VERSION,
        rocmprobe="0.1.0",
        started="2026-11-20T14:03:11+00:00",
        finished="2026-11-20T14:04:09+00:00",
        partial=False,
        simulated=None,
        options={"level": "quick"},
        machine=Machine(),
        settings=(),
        problems=tuple(problem.as_json() for problem in PROBLEMS),
        trials=(),
        outcomes=(),
    )
    return dataclasses.replace(base, **changes)


def rdna1() -> Results:
    """RX 5600 XT as gfx1030 on torch 1.13.1+rocm5.2, simulated: MIOpen fails, the rest works."""
    outcomes = [
        *_ladder("cuda:0", ("gfx1010", "gfx1030"), conv_fails=True),
        *_broken("default"),
        *_broken("gemm-only"),
        *_working("vendor-off", 2.6),
        *_working("bypass", 1.0),
        *_memory("vendor-off"),
        *_memory("bypass"),
    ]
    return _results(
        simulated="rdna1-rocm52-conv-dead",
        machine=rdna1_machine(),
        telemetry=load_machine(named_machine("hot-weak-fan")).telemetry,
        settings=(DEFAULT, GEMM_ONLY, VENDOR_OFF, BYPASS),
        trials=(
            _trial("default", log=LOG), _trial("gemm-only", log=LOG), _trial("vendor-off"), _trial("bypass"),
        ),
        outcomes=tuple(outcomes),
        findings=(
            Finding(
                "miopen-conv", "error", "miopen-no-solver", "MIOpen",
                "MIOpen cannot run any convolution on this card",
                (f"30 of 30 native convolutions end in {STATUS}", "GEMM and im2col pass on the same device"),
                "Keep MIOpen out of convolution: use the recommended configuration above.",
            ),
            Finding(
                "isa", "warning", "override-isa-mismatch", "ROCm runtime",
                "The card is gfx1010 and poses as gfx1030",
                ("native gfx1010: kernel driver", "effective gfx1030: HSA_OVERRIDE_GFX_VERSION=10.3.0"),
                "Kernels built for gfx1030 may use instructions that this chip lacks. Without the override, "
                "this PyTorch build has no kernels for the card at all, so the override has to stay.",
            ),
            Finding(
                "batch-norm", "info", "vendor-library-elsewhere", "MIOpen",
                "Batch norm enters MIOpen too and fails the same way",
            ),
        ),
        recommendation=Recommendation(
            verdict="bypass",
            sentence="Convolution through MIOpen is broken on this RX 5600 XT. Bypass it: every problem is "
            "right that way, and it is the fastest setting that works. For float16, use the "
            "setting “vendor-off”.",
            configuration=Configuration(
                "bypass",
                {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"},
                "import torch\nimport rocmprobe.bypass\n\ntorch.backends.cudnn.enabled = False\n"
                "rocmprobe.bypass.install()",
                ("Batch norm and RNN layers also enter MIOpen; the switch above keeps them out.",),
            ),
            per={
                "float32/training": {"verdict": "bypass", "setting": "bypass"},
                "float32/inference": {"verdict": "bypass", "setting": "bypass"},
                "float16/training": {"verdict": "vendor-off", "setting": "vendor-off"},
            },
            alternatives=(
                {"setting": "vendor-off", "verdict": "vendor-off", "relative_time": 2.6, "reason": "slower"},
                {"setting": "gemm-only", "verdict": "native-with-settings", "reason": f"all fail: {STATUS}"},
            ),
            cost="a workspace of up to 256 MB; its time is 0.4 times that of vendor-off on the CPU that "
            "stands in for the GPU",
            confidence="High: 15 of 15 results within half of their limits, each tried twice.",
            verify="rocmprobe run --verify results.json",
            confidence_level="medium",
            not_covered=("convolution in bfloat16", "the GPU itself: the machine was simulated"),
            advice=(
                {
                    "title": "AMD's own wheels for gfx1010",
                    "text": "AMD's nightly index names a package for it.",
                    "source": "https://github.com/ROCm/TheRock/blob/main/RELEASES.md (2026-06-18)",
                },
            ),
            costs=Costs(
                "float32",
                "bypass",
                (
                    SettingCost("bypass", True, 1.0, 1.0, 1.0, 1.0),
                    SettingCost("vendor-off", False, 2.6, 2.4, 2.8, 1.0),
                ),
                busy=False,
            ),
            others={
                "float16": Configuration(
                    "vendor-off",
                    {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"},
                    "torch.backends.cudnn.enabled = False",
                )
            },
        ),
    )  # fmt: skip


def healthy_cpu() -> Results:
    """A laptop without a GPU where everything works."""
    machine = Machine(
        facts={
            "kernel.release": fact("6.1.0-18-amd64", "/proc/sys/kernel/osrelease"),
            "os.name": fact("Debian GNU/Linux 12 (bookworm)", "/etc/os-release PRETTY_NAME"),
            "cpu.name": fact("AMD Ryzen 7 5800U with Radeon Graphics", "/proc/cpuinfo"),
            "torch.version": fact("2.13.0+cpu", "torch/version.py"),
        }
    )
    isa = (None, None)
    return _results(
        machine=machine,
        settings=(DEFAULT, VENDOR_OFF, BYPASS),
        trials=tuple(_trial(name, "cpu") for name in ("default", "vendor-off", "bypass")),
        outcomes=(
            *_ladder("cpu", isa, conv_fails=False),
            *_working("default", 1.0, "cpu", isa),
            *_working("vendor-off", 3.2, "cpu", isa),
            *_working("bypass", 1.4, "cpu", isa),
            *_memory("bypass", "cpu"),
        ),
        recommendation=Recommendation(
            verdict="native",
            sentence="Convolution works on this CPU as PyTorch ships it.",
            configuration=Configuration("default"),
            per={"float32/training": {"verdict": "native", "setting": "default"}},
            cost="None.",
            confidence="High: 12 of 12 results within their limits.",
            verify="rocmprobe run --verify results.json",
        ),
    )


def expected() -> Results:
    """The same, held against a former run: what failed is known, and what works was not."""
    results = rdna1()

    def marked(outcome: Outcome) -> Outcome:
        state = {"error": "xfail", "pass": "xpass"}.get(outcome.state, outcome.state)
        known = Expected(outcome.state, "baseline", "it failed", "https://example.org/1", "miopen-no-solver")
        return dataclasses.replace(outcome, state=state, expected=known if state != outcome.state else None)

    outcomes = tuple(map(marked, results.outcomes))
    changed = tuple(Change(each.id, "error", "pass", "mended") for each in outcomes if each.state == "xpass")
    changes = Changes("old.json", results.started, "0.1.0", len(outcomes), changed)
    return dataclasses.replace(results, outcomes=outcomes, changes=changes)


def many_settings() -> Results:
    """Enough settings for the matrix to go without words."""
    results = rdna1()
    extra = [f"one-more-setting-{number}" for number in range(9)]
    copies = [
        dataclasses.replace(each, id=f"{each.id}~{name}", setting=name)
        for name in extra
        for each in results.outcomes
        if each.setting == "gemm-only"
    ]
    settings = [dataclasses.replace(results.settings[0], name=name) for name in extra]
    return dataclasses.replace(
        results, outcomes=(*results.outcomes, *copies), settings=(*results.settings, *settings)
    )


def repeated(results: Results, amount: int) -> Results:
    """The same results with ``amount`` outcomes, for size and speed."""
    outcomes = [
        dataclasses.replace(
            each, id=f"{each.id}~{number}", problem=each.problem and f"{each.problem}-s{number}"
        )
        for number in range(amount // len(results.outcomes) + 1)
        for each in results.outcomes
    ]
    return dataclasses.replace(results, outcomes=tuple(outcomes[:amount]))


#: One string that attacks each place it can end up in: HTML text, attributes, scripts, comments,
#: templates, terminals, XML, rich markup, and readers of bidirectional text.
HOSTILE = (
    "<script>alert(1)</script></script></noscript></style></title>-->\"><img src=x onerror=alert(2)>'`{{7*7}}"
    "<a href=javascript:alert(3)>\u2028\u2029\u202e\x1b[31mred\x1b]0;title\x07\x00\ufffe&amp;"
    "[bold]rich[/bold]"
)
_CLOSED = (
    "state", "severity", "verdict", "rung", "direction", "check", "dtype", "schema_version",
    "confidence_level", "level", "purpose",
)  # fmt: skip


def hostile(results: Results, added: str = HOSTILE) -> Any:
    """``results`` as JSON data with ``added`` to every free string, and to every free key."""
    data = to_json(results)
    named = ("env", "facts", "variables", "numerics", "timings", "memory", "per", "others")

    def spoil(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            more = {name + added: spoil(item) for name, item in value.items()} if key in named else {}
            return {**{name: spoil(item, name) for name, item in value.items()}, **more}
        if isinstance(value, (list, tuple)):
            return [spoil(item, key) for item in value]
        # The names below keep the page's parts alive: the ladder and the validation look for them.
        if isinstance(value, str) and key not in _CLOSED and value not in ("default", "bypass"):
            return value + added
        return value

    return spoil(data)
