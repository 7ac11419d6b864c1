"""The list of all rules. A rule is a small pure function that yields findings from facts and outcomes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from rocmprobe.checks import CONVOLUTIONS
from rocmprobe.judge.assessment import (
    AS_FOUND,
    MEASUREMENTS,
    by_severity,
    case_key,
    concerns_convolution,
    failed,
    quoted,
)
from rocmprobe.judge.blame import blamed, cure, excluded, library, library_layer, rung_layer, search_layer
from rocmprobe.judge.findings.alarms import telemetry_findings
from rocmprobe.judge.findings.convolution import native_convolution, other_dtypes, problem_matrix
from rocmprobe.judge.findings.direct import direct, with_direct_calls
from rocmprobe.judge.findings.first_calls import slow_first_calls, slow_new_sizes
from rocmprobe.judge.findings.kernels import kernels, missing_backends
from rocmprobe.judge.findings.machine import MACHINE_RULES
from rocmprobe.judge.findings.primitives import controls, joined, primitives
from rocmprobe.judge.findings.sweep import faulty_solvers
from rocmprobe.model.results import Finding, Outcome, Results

#: Causes that are fixed by installing packages (compilers, headers, kernel sources), not by settings.
OF_THE_INSTALLATION = frozenset(
    {
        "jit-compiler-missing", "jit-header-conflict", "jit-missing-host-headers",
        "miopen-kernel-source-missing", "llvm-library-clash",
    }
)  # fmt: skip
#: Consequences of a failed rung (group of checks) that runs before convolution.
_CARRIES = {
    "copy": "every later test depends on it and did not run",
    "elementwise": "every later test depends on it and did not run",
    "gemm": "the bypass and PyTorch's own convolution depend on it",
    "im2col": "PyTorch's own convolution depends on it",
}


def diagnose(results: Results) -> tuple[Finding, ...]:
    """Return every finding of ``results``, the most severe first."""
    rules = (
        *MACHINE_RULES, direct, _two_copies, _aborted, _wedged, _probe_errors, _teardown,
        _partial, telemetry_findings,
    )  # fmt: skip
    found = [finding for rule in rules for finding in rule(results)]
    of_one = (
        _ladder, controls, kernels, missing_backends, native_convolution, other_dtypes, problem_matrix,
        faulty_solvers, primitives, _gradient_flow, _training_step, _autocast_step, _channels_last_step,
        _as_found, _bypass, _memory, _fallback, slow_first_calls, slow_new_sizes,
    )  # fmt: skip
    unusable = tuple(_torch_unusable(results))
    judged = unusable or with_direct_calls((found for rule in of_one for found in rule(results)), results)
    return by_severity([*(_with_cure(results, finding) for finding in judged), *found])


def resume(results: Results) -> str:
    """Return the command that continues an interrupted run."""
    folder = results.options.get("folder")
    return f"rocmprobe run --resume {shlex.quote(str(folder))}" if folder else "rocmprobe run --resume"


def _with_cure(results: Results, finding: Finding) -> Finding:
    """Return ``finding``. If the installation is at fault, begin the advice with the repair."""
    if finding.cause not in OF_THE_INSTALLATION:
        return finding
    return replace(finding, advice=f"{cure(results, finding.cause)} Until then: {finding.advice}")


def _of_default(results: Results, check: str) -> tuple[Outcome, ...]:
    return tuple(
        outcome for outcome in results.outcomes if (outcome.check, outcome.setting) == (check, "default")
    )


def _torch_unusable(results: Results) -> Iterator[Finding]:
    broken = failed(results.outcomes)
    if not broken or any(outcome.cause != "torch-unusable" for outcome in broken):
        return
    cause, layer = blamed(results, broken, "torch-build")
    advice = "Fix this first: nothing was tested. Fix what the message names, or reinstall torch."
    yield Finding(
        "torch-unusable", "error", cause, layer, "torch cannot be imported",
        (*quoted(broken), *excluded(results, broken)), advice,
    )  # fmt: skip


def _ladder(results: Results) -> Iterator[Finding]:
    """Yield findings about the lowest group of checks (rung) that fails."""
    float32 = _broken_rung(results, "float32")
    if float32:
        rung, outcomes = float32
        cause, layer = blamed(results, outcomes, rung_layer(results, rung))
        yield Finding(
            f"rung-{rung}",
            "error",
            cause,
            layer,
            f"The {rung} test fails, so the fault is below convolution and below {library(results)}",
            (*quoted(outcomes), *excluded(results, outcomes)),
            f"Fix this first: {_CARRIES[rung]}.",
        )
        return
    for dtype in sorted({outcome.dtype for outcome in results.outcomes} - {"float32"}):
        found = _broken_rung(results, dtype)
        if found:
            rung, outcomes = found
            cause, layer = blamed(results, outcomes, rung_layer(results, rung))
            if dtype == "float16" and cause == "wrong-results-unexplained":
                cause = "fp16-broken"
            yield Finding(
                f"rung-{rung}-{dtype}",
                "warning",
                cause,
                layer,
                f"The {rung} test fails in {dtype}, so the fault is below convolution; float32 works",
                quoted(outcomes),
                f"Stay with float32. {cure(results, cause, outcomes)}"
                if cause == "hipblaslt-missing-arch"
                else "Stay with float32.",
            )


def _broken_rung(results: Results, dtype: str) -> Optional[tuple[str, tuple[Outcome, ...]]]:
    for rung in _CARRIES:
        outcomes = failed(outcome for outcome in _of_default(results, rung) if outcome.dtype == dtype)
        if outcomes:
            return rung, outcomes
    return None


def _step(results: Results, check: str, severity: str, title: str, advice: str) -> Iterator[Finding]:
    """Yield a finding if ``check`` fails under ``default``.

    ``title`` can contain the placeholders {library} and {dtypes}.
    """
    broken = failed(_of_default(results, check))
    if broken:
        cause, layer = blamed(results, broken, library_layer(results, broken))
        dtypes = " and ".join(sorted({outcome.dtype for outcome in broken}))
        words = title.format(library=library(results), dtypes=dtypes)
        yield Finding(check, severity, cause, layer, words, quoted(broken), advice)


def _training_step(results: Results) -> Iterator[Finding]:
    """Yield a finding if the training step fails under ``default``.

    If ``default`` has no result, use the outcomes under other settings.
    """
    asked = [outcome for outcome in results.outcomes if outcome.check == "training-step"]
    by_default = [outcome for outcome in asked if outcome.setting == "default"]
    broken = failed(by_default)
    under = f"with {library(results)}"
    if not broken and not any(outcome.works for outcome in by_default):
        broken = failed(asked)
        under = f"under {joined(list(dict.fromkeys(outcome.setting for outcome in broken)))}"
    if not broken:
        return
    cause, layer = blamed(results, broken, library_layer(results, broken))
    advice = "Use the recommended configuration, if there is one. Its training step passed."
    if broken[0].device != "cpu" and all(outcome.state == "wrong" for outcome in broken):
        advice += (
            " To find the reason, run your program with PYTORCH_NO_CUDA_MEMORY_CACHING=1. If the numbers are "
            "correct then, a kernel reads memory with old values. The variable makes programs much "
            "slower."
        )
    yield Finding(
        "training-step", "error", cause, layer,
        f"A small network does not train correctly {under}, although each of its layers passed alone",
        quoted(broken), advice,
    )  # fmt: skip


def _gradient_flow(results: Results) -> Iterator[Finding]:
    """Yield a finding if gradients are wrong with a training method, such as checkpointing."""
    broken = failed(_of_default(results, "gradient-flow"))
    if broken:
        cause, layer = blamed(results, broken, library_layer(results, broken))
        in_float32 = any(outcome.dtype == "float32" for outcome in broken)
        dtypes = " and ".join(sorted({outcome.dtype for outcome in broken}))
        yield Finding(
            "gradient-flow",
            "error" if in_float32 else "warning",
            cause,
            layer,
            f"Convolution gradients are wrong in {dtypes} for some training methods (such as checkpointing)",
            quoted(broken),
            "Avoid the method in the evidence, or use a configuration under which it passed.",
        )


def _memory(results: Results) -> Iterator[Finding]:
    beyond = tuple(
        outcome for outcome in results.outcomes if (outcome.check, outcome.state) == ("memory", "wrong")
    )
    if beyond:
        yield Finding(
            "memory",
            "info",
            "unknown",
            "rocmprobe",
            f"{len(beyond)} memory check(s) used more memory than predicted",
            quoted(beyond),
            "Results are correct. Plan with the measured amounts of memory.",
        )


def _autocast_step(results: Results) -> Iterator[Finding]:
    return _step(
        results, "autocast-step", "warning",
        "A small network does not train correctly under autocast to {dtypes}; in float32 it does",
        "Train in float32, or use a configuration whose autocast step passed.",
    )  # fmt: skip


def _channels_last_step(results: Results) -> Iterator[Finding]:
    return _step(
        results, "channels-last-step", "warning",
        "A small network does not train correctly in channels-last; with contiguous images it does",
        "Do not use `memory_format=torch.channels_last`, or use a configuration whose channels-last "
        "step passed.",
    )  # fmt: skip


def _as_found(results: Results) -> Iterator[Finding]:
    broken = _failed_alone(results, AS_FOUND, "default")
    cured = _failed_alone(results, "default", AS_FOUND)
    if cured:
        cause, layer = blamed(results, cured, library_layer(results, cured))
        yield Finding(
            "only-as-found",
            "warning",
            cause,
            layer,
            f"{len(cured)} test(s) pass only in your own environment and fail in a clean one",
            quoted(cured),
            "They pass because of a variable that `rocmprobe detect` lists, or because of entries in the "
            "library's databases and caches (MIOpen: ~/.config/miopen and ~/.cache/miopen). Keep a copy of "
            "both: the tests fail without them, or after an update of the library.",
        )
    if broken:
        cause, layer = blamed(results, broken, "user-env")
        yield Finding(
            AS_FOUND,
            "error",
            cause,
            layer,
            f"{len(broken)} test(s) fail in your own environment and pass in a clean one",
            quoted(broken),
            "Move the library's databases and caches away (MIOpen: `mv ~/.config/miopen "
            "~/.config/miopen.old; mv ~/.cache/miopen ~/.cache/miopen.old`), and unset the variables that "
            "`rocmprobe detect` lists. Until then `rocmprobe exec` gives programs clean databases.",
        )


def _failed_alone(results: Results, setting: str, other: str) -> tuple[Outcome, ...]:
    passed = {case_key(each) for each in results.outcomes if each.setting == other and each.works}
    return tuple(
        each for each in failed(results.outcomes) if each.setting == setting and case_key(each) in passed
    )


def _bypass(results: Results) -> Iterator[Finding]:
    names = {setting.name for setting in results.settings if setting.bypass}
    broken = tuple(
        outcome
        for outcome in failed(results.outcomes)
        if outcome.setting in names
        and outcome.check in (*CONVOLUTIONS, "gradients", "gradient-flow", *MEASUREMENTS)
        and concerns_convolution(outcome)
    )
    if not broken:
        return
    gemm = failed(_of_default(results, "gemm"))
    cause, layer = blamed(results, broken, rung_layer(results, "gemm") if gemm else "rocmprobe")
    if gemm:
        advice = "The bypass uses GEMM, which fails too. Fix GEMM first."
    elif layer == "rocmprobe":
        advice = (
            "The bypass uses GEMM, which is not known to fail. Please report this possible bug in rocmprobe."
        )
    else:
        advice = "The evidence names a fault below the bypass. Fix this fault first."
    yield Finding(
        "bypass",
        "error",
        cause,
        layer,
        f"The bypass fails in {len(broken)} test(s)",
        quoted(broken),
        advice,
    )


def _fallback(results: Results) -> Iterator[Finding]:
    slow = [
        outcome for outcome in results.outcomes if outcome.state == "slow" and outcome.setting == "default"
    ]
    if slow:
        yield Finding(
            "fallback-solver",
            "info",
            "slow-no-tuned-kernels",
            search_layer(results),
            f"{library(results)} chose its naive kernels in {len(slow)} test(s)",
            quoted(slow),
            "They can be the fastest for small problems. Compare the measured times of the alternatives.",
        )


def _two_copies(results: Results) -> Iterator[Finding]:
    """Yield a finding if a process loaded two copies of one library."""
    copies = {
        f"{trial.setting}: {', '.join(paths)}": name
        for trial in results.trials
        for name, paths in sorted(trial.mapped.items())
        if len(paths) > 1
    }
    if copies:
        names = ", ".join(sorted(set(copies.values())))
        yield Finding(
            "two-copies", "warning", "library-path", "user-env",
            f"Two copies of one library in one process: {names}", tuple(copies)[:5],
            "Keep one copy: unset LD_LIBRARY_PATH, or remove the ROCm libraries that do not belong to torch.",
        )  # fmt: skip


def _aborted(results: Results) -> Iterator[Finding]:
    died = [outcome for outcome in results.outcomes if outcome.state == "aborted"]
    froze = [outcome for outcome in died if outcome.cause == "machine-died"]
    if died:
        yield Finding(
            "aborted",
            "error" if froze else "info",
            "gpu-hang-reset" if froze else "unknown",
            "driver" if froze else "rocmprobe",
            f"{len(died)} test(s) were running when the {'machine stopped' if froze else 'run ended'}",
            quoted(froze or died),
            f"To repeat them, run `{resume(results)} --retry-aborted`."
            + (" This can stop the machine again." if froze else ""),
        )


def _wedged(results: Results) -> Iterator[Finding]:
    blocked = [outcome for outcome in results.outcomes if outcome.cause == "gpu-wedged"]
    if blocked:
        yield Finding(
            "gpu-wedged",
            "error",
            "gpu-hang-reset",
            "driver",
            f"The device stopped responding during the run; {len(blocked)} test(s) did not run",
            quoted(failed(results.outcomes)[-1:]),
            f"Reboot, then continue with `{resume(results)}`. rocmprobe never resets a GPU.",
        )


def _probe_errors(results: Results) -> Iterator[Finding]:
    broken = [outcome for outcome in results.outcomes if outcome.state == "probe-error"]
    if broken:
        yield Finding(
            "probe-error",
            "warning",
            "unknown",
            "rocmprobe",
            f"rocmprobe itself failed in {len(broken)} test(s), which therefore have no result",
            quoted(broken),
            "This is a bug in rocmprobe. Please report it.",
        )


def _teardown(results: Results) -> Iterator[Finding]:
    crashed = [trial for trial in results.trials if trial.exit_crash]
    if crashed:
        yield Finding(
            "exit-crash",
            "info",
            "unknown",
            rung_layer(results, "copy"),
            f"{len(crashed)} process(es) crashed at exit, after all results were recorded",
            tuple(f"{trial.id}: {trial.exit}" for trial in crashed[:3]),
            "The results are valid. Your programs may exit with an error code.",
        )


def _partial(results: Results) -> Iterator[Finding]:
    if results.partial:
        yield Finding(
            "partial",
            "warning",
            "unknown",
            "warning-only",
            "The run is incomplete: the missing tests have no result",
            (f"{len(results.outcomes)} outcomes were recorded",),
            f"Continue with `{resume(results)}`.",
        )


def act_on(results: Results) -> bool:
    """Return True if a finding is more severe than "info"."""
    return any(finding.severity != "info" for finding in results.findings)
