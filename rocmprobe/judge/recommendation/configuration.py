"""Configuration for the user to copy: environment variables, Python lines and notes about layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rocmprobe.judge.assessment import AS_FOUND, Assessment, device_of, failed, library
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.kernels import additional_changes
from rocmprobe.judge.findings.primitives import layer_outcomes, not_alone, scoped_off
from rocmprobe.knowledge.environment import removed
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.layers import install_line, layer_checks, options_for
from rocmprobe.knowledge.variables import VARIABLE_NAME
from rocmprobe.knowledge.visible_devices import mask_of
from rocmprobe.model.results import Configuration, Finding, Outcome, Results, Setting
from rocmprobe.text.plain_text import assignments, joined, quoted
from rocmprobe.torch_flags import statement

_OFF = {
    "oneDNN": "torch.backends.mkldnn.enabled = False",
    "cuDNN": "torch.backends.cudnn.enabled = False",
    "MIOpen": "torch.backends.cudnn.enabled = False  # on ROCm this switches MIOpen off",
}

#: Maximum number of characters of a variable's value, and of all Python lines together. Real settings are far
#: shorter.
_LONGEST_VALUE, _LONGEST_CODE = 4096, 20_000
#: The advice leaves this layer out, because models use this layer only after a fusion pass.
_FUSED = "convolution with ReLU in one operator"
_PYTORCH = "PyTorch's own kernels"
_CLEAN_DATABASES = (
    "Your programs need clean databases and caches, because tests fail in your own environment. Run them "
    "with `rocmprobe exec`, or follow the finding about your own environment."
)
_CHANNELS_LAST = "model = model.to(memory_format=torch.channels_last)  # convert its 4-d inputs, too"


def configuration(run: Evidence, findings: Sequence[Finding], best: Assessment) -> Configuration:
    """Return the configuration of ``best``, with the changes that layers other than convolution need."""
    besides = () if best.setting.device == "cpu" else additional_changes(findings)
    clean = (_CLEAN_DATABASES,) if needs_clean_databases(findings, best.setting) else ()
    found = of_setting(run.results, best.setting)
    if best.setting.unchanged and _own_environment_works(run):
        found = replace(found, unset=())
    return replace(found, layers=(*clean, *_layers(run, best), *besides))


def _own_environment_works(run: Evidence) -> bool:
    setting = run.results.setting(AS_FOUND)
    purpose = run.results.purpose
    return setting is not None and run.assess(setting, (run.dtypes or ("float32",))[0], purpose).right


def of_setting(results: Results, setting: Setting) -> Configuration:
    """Return the variables and Python lines that apply ``setting`` to a user's program."""
    # A program on the CPU needs neither an override nor a choice of GPU.
    of_run = {} if setting.verdict == "cpu" else {**isa_override(results), **chosen_gpu(results)}
    env = {**{name: of_run[name] for name in of_run if name not in setting.unset}, **setting.env}
    unset = dict.fromkeys((*setting.unset, *removed(replace(setting, env=env), results.machine.environment)))
    return Configuration(setting.name, env, _code(results, setting), unset=tuple(unset))


def needs_clean_databases(findings: Iterable[Finding], setting: Setting) -> bool:
    """Return True if ``setting`` works only without the user's databases and caches."""
    fails = any(finding.id == AS_FOUND for finding in findings)
    return fails and setting.vendor_library and not setting.inherit_environment and setting.device != "cpu"


def isa_override(results: Results) -> dict[str, str]:
    """Return the environment variables of the ISA override that was set during the run."""
    return {
        name: str(fact.value)
        for name, fact in results.machine.variables.items()
        if name.startswith(OVERRIDE) and fact.value and library(results) == "MIOpen"
    }


def chosen_gpu(results: Results) -> dict[str, str]:
    """Return the environment variables that restrict a program to the GPU that the run chose automatically.

    Return {} if programs use this GPU by default, or if the machine is simulated.
    """
    device = device_of(results) or ""
    number = device.partition(":")[2]
    # Indices of simulated GPUs do not exist on the real machine.
    if results.simulated or results.options.get("device") not in ("auto", "all") or number in ("", "0"):
        return {}
    gpu = next((each for each in results.machine.amd_gpus if str(each.index.value) == number), None)
    return mask_of(results.machine, gpu) if gpu else {}


def _code(results: Results, setting: Setting) -> str:
    flags = [statement(name, value) for name, value in setting.torch.items()]
    if not setting.vendor_library:
        flags.append(_OFF[library(results)])
    if setting.channels_last:
        flags.append(_CHANNELS_LAST)
    lines = ["import torch", *flags] if flags else []
    if setting.bypass or setting.pytorch_layers:
        lines += ["import rocmprobe.bypass", install_line(setting.pytorch_layers, setting.bypass)]
    if setting.device == "cpu":
        lines.append('device = "cpu"')
    return "\n".join(lines)


def _layers(run: Evidence, best: Assessment) -> tuple[str, ...]:
    name, setting = run.library, best.setting
    if setting.device == "cpu":
        return ()
    if setting.channels_last:
        return ("Batch norm and the training step were not tested in channels-last.",)
    if setting.pytorch_layers:
        return tuple(_by_layer(run, best))
    asked = layer_outcomes(run, "default" if setting.vendor_library else "vendor-off")
    asked = {words: outcomes for words, outcomes in asked.items() if words != _FUSED}
    broken = [words for words, outcomes in asked.items() if failed(outcomes)]
    fail = f"{joined(broken)} {'fails' if len(broken) == 1 else 'fail'}"
    if not setting.vendor_library:
        leave = f"Batch norm and RNN do not use {name} either, because one switch turns it off for all layers"
        return (f"{leave}. {fail} without {name} as well." if broken else f"{leave}.",)
    options = options_for(broken)
    if not setting.bypass:
        against = run.failures_of_pytorch_layers(options) if broken else ()
        if against:
            alone = not_alone(f"Convolution in {name}", joined(broken), name, against)
            return (f"{fail} in {name}. {alone}",)
        way = f"use `with {scoped_off(name)}:` for failing layers, or send only them to {_PYTORCH}: "
        return (f"{fail} in {name}: {way}`{install_line(options)}`",) if broken else ()
    stay = f"Batch norm and RNN still run in {name}"
    against = run.failures_of_pytorch_layers(options, bypass=True) if broken else ()
    if against:
        return (f"{stay}, where {fail}. {not_alone('The bypass', joined(broken), name, against)}",)
    if broken:
        off, line = _OFF[name].partition("  #")[0], install_line(options, bypass=True)
        return (f"{stay}, where {fail}: switch {name} off too (`{off}`), or use {_PYTORCH} (`{line}`)",)
    right = [words for words, outcomes in asked.items() if _works(outcomes)]
    if "batch norm" not in right and any(each.check == "training-step" for each in best.counted):
        right.insert(0, "batch norm")
    if not right:
        return (f"{stay}. They were not tested.",)
    others = [words for words in asked if words not in right]
    untested = f" Not tested: {joined(others)}." if others else ""
    return (f"{stay}. Tested and correct: {joined(right)}.{untested}",)


def unusable(configuration: Configuration) -> str:
    """Return the reason why a configuration read from a file is unsafe to apply, or "" if it is safe.

    Each name must be the name of an environment variable. Each value must be one line of printable ASCII.
    Python lines must not look like commands to a GitHub job ("::", "##[").
    """
    for name, value in configuration.env.items():
        if not VARIABLE_NAME.fullmatch(name):
            return f"env: {quoted(name)} is not the name of a variable"
        if not _printable(value) or len(value) > _LONGEST_VALUE:
            return f"env: {quoted(name)}: {quoted(value)} is not a valid value"
    for name in configuration.unset:
        if not VARIABLE_NAME.fullmatch(name):
            return f"unset: {quoted(name)} is not the name of a variable"
    code = configuration.code
    lines = code.split("\n")
    commands = any(line.lstrip().startswith("::") or "##[" in line for line in lines)
    if commands or len(code) > _LONGEST_CODE or not all(map(_printable, lines)):
        return f"code: {quoted(code)} is not valid code for a setting"
    return ""


def _printable(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _by_layer(run: Evidence, best: Assessment) -> Iterator[str]:
    name, setting = run.library, best.setting
    yield f"convolution: {name}{_with(setting)}, correct"
    sent = [layer.words for layer in layer_checks() if layer.option in setting.pytorch_layers]
    own, as_found = layer_outcomes(run, setting.name), layer_outcomes(run, "default")
    for words in as_found:
        by, outcomes = (_PYTORCH, own[words]) if words in sent else (name, as_found[words])
        if _works(outcomes) or failed(outcomes):
            yield f"{words}: {by}, {'fails there too' if failed(outcomes) else 'correct'}"


def _with(setting: Setting) -> str:
    switches = assignments(setting.env)
    switches += [f"unset {name}" for name in setting.unset]
    switches += [statement(name, value) for name, value in setting.torch.items()]
    return f" with {' '.join(switches)}" if switches else " unchanged"


def _works(outcomes: tuple[Outcome, ...]) -> bool:
    return any(outcome.works for outcome in outcomes)
