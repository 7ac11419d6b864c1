"""Findings: rules over facts and outcomes, each a small function, none of which touches anything."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.gpus import missing_features
from rocmprobe.judge.evidence import NATIVE, Standing, dtypes, failed, quoted, signature, standing
from rocmprobe.model import SEVERITIES, WORKING_STATES, Finding, Outcome, Results

#: The layer to blame when a rung is the lowest that fails, and nothing in the evidence says more.
_RUNG_LAYERS = {"copy": "hip", "elementwise": "torch-build", "gemm": "rocblas", "im2col": "torch-build"}
_BACKEND_NAMES = {"miopen": "MIOpen", "cudnn": "cuDNN", "onednn": "oneDNN"}


def diagnose(results: Results) -> tuple[Finding, ...]:
    """Every finding of ``results``, the gravest first."""
    rules = (_isa_mismatch, _wrong_build, _lowest_rung, _native_convolution, _other_dtypes, _batch_norm,
             _bypass, _fallback, _wedged, _teardown, _partial)  # fmt: skip
    found = [finding for rule in rules for finding in rule(results)]
    return tuple(sorted(found, key=lambda finding: -SEVERITIES.index(finding.severity)))


def library(results: Results) -> str:
    """The vendor library that was tested, by the name people know."""
    target = next(iter(results.options.get("targets", ())), None)
    backend = target["backend"] if target else "onednn"
    return _BACKEND_NAMES[backend]


def _native(results: Results, dtype: str) -> list[Standing]:
    found = [standing(results, setting, dtype, "training") for setting in results.settings]
    return [each for each in found if each.setting.verdict in NATIVE and _convolutions(each.counted)]


def _convolutions(outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
    return tuple(outcome for outcome in outcomes if outcome.check == "convolution")


def _sound(each: Standing) -> bool:
    """Every convolution asked came out right; one that was blocked proves nothing."""
    asked = _convolutions(each.counted)
    return bool(asked) and all(outcome.state in WORKING_STATES for outcome in asked)


def _broken(each: Standing) -> tuple[Outcome, ...]:
    return failed(_convolutions(each.against))


def _without_library(results: Results, dtype: str) -> list[str]:
    """Settings that keep convolution out of the vendor library and hold up, on the device itself."""
    found = [standing(results, setting, dtype, "training") for setting in results.settings]
    return [
        each.setting.name
        for each in found
        if each.setting.verdict in ("vendor-off", "bypass") and _sound(each)
    ]


def _isa_mismatch(results: Results) -> Iterator[Finding]:
    for number, gpu in enumerate(results.machine.gpus):
        native, effective = gpu.native_isa.value, gpu.effective_isa.value
        if not native or not effective or native == effective:
            continue
        lacking = missing_features(native, effective)
        hurt = any(_broken(each) for dtype in dtypes(results) for each in _native(results, dtype))
        severity = "error" if lacking and hurt else "warning" if lacking else "info"
        risk = "may fail, hang or compute wrong numbers on it" if lacking else "should run on it"
        yield Finding(
            f"isa-mismatch-{number}",
            severity,
            "override-isa-mismatch",
            "user-env",
            f"{gpu.name.value or 'the GPU'} is {native} silicon that pretends to be {effective}: "
            f"code built for {effective} {risk}",
            (
                f"native ISA {native}, from {gpu.native_isa.source}",
                f"effective ISA {effective}, from {gpu.effective_isa.source}",
                *lacking,
            ),
            f"A torch built for {native} needs no override. Until then use the configuration recommended "
            "here, which was checked as the machine is."
            if lacking
            else "Nothing to do.",
        )


def _wrong_build(results: Results) -> Iterator[Finding]:
    cards = [gpu for gpu in results.machine.gpus if gpu.vendor.value == "amd"]
    kind = results.machine.value("torch.kind")
    if cards and kind not in ("rocm", None):
        version = results.machine.value("torch.version")
        yield Finding(
            "wrong-torch-build",
            "warning",
            "wrong-torch-build",
            "torch-build",
            f"torch {version} is a {kind} build: it cannot use the {cards[0].name.value or 'AMD GPU'}",
            (f"torch.kind {kind}, from {results.machine.facts['torch.kind'].source}",),
            "Install a ROCm build of torch from PyTorch's wheel index (https://download.pytorch.org/whl/), "
            "then run again.",
        )


def _lowest_rung(results: Results) -> Iterator[Finding]:
    """The ladder below convolution: the lowest rung that fails explains all above it."""
    for rung, layer in _RUNG_LAYERS.items():
        broken = failed(
            outcome
            for outcome in results.outcomes
            if outcome.rung == rung and outcome.setting == "default" and outcome.dtype == "float32"
        )
        if broken:
            cause, blamed = signature(broken) or ("unknown", layer)
            yield Finding(
                f"rung-{rung}",
                "error",
                cause,
                blamed,
                f"The ladder breaks at {rung}, below convolution: {library(results)} is not to blame",
                quoted(broken),
                "Mend this layer first; every rung above it is blocked.",
            )
            return


def _native_convolution(results: Results) -> Iterator[Finding]:
    native = _native(results, "float32")
    default = next((each for each in native if each.setting.name == "default"), None)
    if default is None or not _broken(default):
        return
    cures = [each.setting.name for each in native if _sound(each)]
    elsewhere = _without_library(results, "float32")
    name = library(results)
    evidence = quoted(failed(default.against)) + tuple(
        line for outcome in _broken(default)[:1] for line in outcome.evidence[1:4]
    )
    found = signature(_broken(default))
    if cures or elsewhere:
        cause, layer = found or ("unknown", _layer(name, _broken(default)))
        where = f"under {len(native) - len(cures)} of {len(native)} {name} settings"
        rest = (
            f"it works with {', '.join(cures)}"
            if cures
            else f"the same work passes with {', '.join(elsewhere)}"
        )
        title = f"{name} is the layer at fault: native float32 convolution fails {where}; {rest}"
        advice = "Use the recommended configuration; attach this report to a bug issue."
    else:
        cause, layer = found or ("unknown", "hip")
        title = f"float32 convolution fails with {name} and without it: the fault lies below {name}"
        advice = "No setting of the library cures this; look at the lower rungs and at the torch build."
    yield Finding("native-convolution", "error", cause, layer, title, evidence, advice)


def _layer(name: str, outcomes: tuple[Outcome, ...]) -> str:
    """Where in the library it goes wrong, by how it fails: MIOpen's status comes out of the search."""
    if name != "MIOpen":
        return name
    return "miopen-find" if outcomes[0].cause == "miopen-status" else "miopen-exec"


def _other_dtypes(results: Results) -> Iterator[Finding]:
    """A dtype that fails natively where float32 does not."""
    sound = {each.setting.name for each in _native(results, "float32") if _sound(each)}
    for dtype in dtypes(results):
        native = [each for each in _native(results, dtype) if each.setting.name in sound]
        default = next((each for each in native if each.setting.name == "default"), None)
        if dtype == "float32" or default is None or not _broken(default):
            continue
        cures = [each.setting.name for each in native if _sound(each)]
        wrong = all(outcome.state == "wrong" for outcome in _broken(default))
        cause = "fp16-broken" if dtype == "float16" and wrong else "unknown"
        found = signature(_broken(default))
        yield Finding(
            f"native-{dtype}",
            "warning",
            found[0] if found else cause,
            found[1] if found else _layer(library(results), _broken(default)),
            f"{dtype} convolution {'computes wrong numbers' if wrong else 'fails'} in {library(results)}, "
            "float32 works" + (f"; {dtype} works with {', '.join(cures)}" if cures else ""),
            quoted(_broken(default)),
            f"Stay with float32, or use one of: {', '.join(cures)}." if cures else "Stay with float32.",
        )


def _batch_norm(results: Results) -> Iterator[Finding]:
    broken = failed(
        outcome
        for outcome in results.outcomes
        if outcome.check == "batch-norm" and outcome.setting == "default"
    )
    if broken:
        cause, layer = signature(broken) or ("unknown", _layer(library(results), broken))
        yield Finding(
            "batch-norm",
            "error",
            cause,
            layer,
            f"Batch norm fails in {library(results)}: training needs it switched off for batch norm too",
            quoted(broken),
            "Use a configuration with the vendor library off.",
        )


def _bypass(results: Results) -> Iterator[Finding]:
    broken = failed(outcome for outcome in results.outcomes if "bypass" in outcome.setting)
    mine = [outcome for outcome in broken if outcome.check in ("convolution", "gradients", "memory")]
    if mine:
        yield Finding(
            "bypass",
            "error",
            (signature(mine) or ("unknown", ""))[0],
            (signature(mine) or ("", "rocblas"))[1],
            f"The bypass fails {len(mine)} of its own checks and is not recommended",
            quoted(mine),
            "If GEMM passes on this machine, this is a bug of rocmprobe: please report it.",
        )


def _fallback(results: Results) -> Iterator[Finding]:
    slow = [
        outcome for outcome in results.outcomes if outcome.state == "slow" and outcome.setting == "default"
    ]
    if slow:
        yield Finding(
            "fallback-solver",
            "warning",
            "slow-no-tuned-kernels",
            "miopen-find",
            f"{library(results)} falls back to its slowest kernels for {len(slow)} question(s)",
            quoted(slow),
            "Compare the throughput of the alternatives below.",
        )


def _wedged(results: Results) -> Iterator[Finding]:
    blocked = [outcome for outcome in results.outcomes if outcome.cause == "gpu-wedged"]
    if blocked:
        yield Finding(
            "gpu-wedged",
            "error",
            "gpu-hang-reset",
            "driver",
            f"The GPU stopped answering during the run; {len(blocked)} question(s) were not asked",
            quoted(failed(results.outcomes)[-1:]),
            "Reboot, then run with --resume. rocmprobe never resets a GPU.",
        )


def _teardown(results: Results) -> Iterator[Finding]:
    crashed = [trial for trial in results.trials if trial.exit_crash]
    if crashed:
        yield Finding(
            "exit-crash",
            "info",
            "unknown",
            "hip",
            f"{len(crashed)} process(es) crashed at their end, after every result was in",
            tuple(f"{trial.id}: {trial.exit}" for trial in crashed[:3]),
            "Harmless to the results; programs may exit with an error code.",
        )


def _partial(results: Results) -> Iterator[Finding]:
    if results.partial:
        yield Finding(
            "partial",
            "warning",
            "unknown",
            "warning-only",
            "The run did not come to its end: what is missing was not learned",
            (f"{len(results.outcomes)} outcomes are in",),
            "Go on with `rocmprobe run --resume`.",
        )


def act_on(results: Results) -> bool:
    """Whether the user should act: a finding that is more than information."""
    return any(finding.severity != "info" for finding in results.findings)
