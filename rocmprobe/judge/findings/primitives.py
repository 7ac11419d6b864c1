"""Findings about layers other than plain convolution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Union

from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import Case
from rocmprobe.judge.assessment import case_key, failed, quoted
from rocmprobe.judge.blame import blamed, library_layer, rung_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.layers import install_line, layer_checks, options_for
from rocmprobe.model.problems import KINDS
from rocmprobe.model.results import Finding, Outcome
from rocmprobe.text.plain_text import joined, sentence_case

_KIND_WORDS = {kind: f"{'transposed ' if 'transpose' in kind else ''}{KINDS[kind]}-d" for kind in KINDS}
_SCOPE = {"oneDNN": "torch.backends.mkldnn.flags(enabled=False)"}

_CUDNN_SCOPE = "torch.backends.cudnn.flags(enabled=False)"


def scoped_off(name: str) -> str:
    """Return Python code for the context manager that turns off the library ``name``."""
    return _SCOPE.get(name, _CUDNN_SCOPE)


def layer_outcomes(run: Evidence, setting: str) -> dict[str, tuple[Outcome, ...]]:
    """Return the float32 outcomes under ``setting``, keyed by layer, e.g. "batch norm"."""
    return {
        layer.words: tuple(
            outcome
            for outcome in run.outcomes
            if outcome.check in checks and (outcome.setting, outcome.dtype) == (setting, "float32")
        )
        for layer, checks in layer_checks().items()
    }


def primitives(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each layer or kind of convolution that fails under ``default``."""
    layers = _by_words(run)
    for words, outcomes in layers.items():
        broken = failed(outcomes)
        explained = words == "batch norm in evaluation" and failed(layers.get("batch norm", ()))
        if broken and not explained:
            yield _primitive(run, words, outcomes, broken)


def _by_words(run: Evidence) -> dict[str, list[Outcome]]:
    known = {name: check.layer.words for name, check in CHECKS.items() if check.layer}
    found: dict[str, list[Outcome]] = {}
    for outcome in run.outcomes:
        if outcome.setting != "default":
            continue
        words = kind_words(outcome) if outcome.check == "convolution-kinds" else known.get(outcome.check)
        if words:
            found.setdefault(words, []).append(outcome)
    return found


def kind_words(outcome: Union[Case, Outcome]) -> str:
    """Return the kind of convolution of ``outcome`` in words, e.g. "transposed 2-d convolution"."""
    kind, *tokens = (outcome.problem or "").split("-")
    numbers = {token[0]: token[1:] for token in tokens if token[1:].isdigit()}
    if numbers.get("g") and numbers.get("g") == numbers.get("c"):
        return "depthwise convolution"
    return f"{_KIND_WORDS.get(kind, kind)} convolution"


def _primitive(
    run: Evidence, words: str, outcomes: Sequence[Outcome], broken: tuple[Outcome, ...]
) -> Finding:
    name = run.library
    single = tuple(outcome for outcome in broken if outcome.dtype == "float32")
    affected = single or broken
    off = _without_library(run, affected)
    cured = any(outcome.works for outcome in off) and not failed(off)
    what = sentence_case(words)
    what += " computes wrong numbers" if all(outcome.state == "wrong" for outcome in affected) else " fails"
    dtypes = "" if single else f" in {joined(sorted({outcome.dtype for outcome in affected}))}"
    if failed(off):
        layer = rung_layer(run, "controls")
        title = f"{what}{dtypes} with and without {name}, so the fault is below {name}"
        advice = "No setting of the library fixes this. See the findings about lower layers."
    else:
        # MIOpen searches for a solver only for convolution. So for other operators, pass no outcomes, because
        # the layer cannot be "miopen-find".
        layer = library_layer(run, affected if affected[0].check.startswith("convolution") else ())
        learned = (
            f"it is correct with {name} off" if cured else f"whether it works without {name} was not tested"
        )
        title = f"{what} in {name}{dtypes}; {learned}"
        advice = f"Turn {name} off for this layer (`with {scoped_off(name)}:`), or for the whole program."
        options = options_for((words,))
        against = (
            run.failures_of_pytorch_layers(options, sorted({each.dtype for each in affected}))
            if options
            else ()
        )
        if against:
            alone = not_alone(f"Convolution in {name}", words, name, against)
            advice = f"Use the recommended configuration, if there is one. {alone}"
        elif options:
            advice += f" Or send only this layer to PyTorch's own kernels: `{install_line(options)}`."
    if dtypes and any((each.dtype, each.state) == ("float32", "pass") for each in outcomes):
        title += "; float32 works"
    cause, layer = blamed(run, affected, layer, cured)
    severity = "error" if single and words.startswith("batch norm") else "warning"
    return Finding(_id(words), severity, cause, layer, title, quoted(affected), advice)


def not_alone(convolution: str, words: str, name: str, against: Sequence[Outcome]) -> str:
    """Return a sentence such as "Convolution in MIOpen fails here with batch norm outside MIOpen".

    ``convolution`` is the subject, ``words`` are the layers, and ``name`` is the library. The sentence quotes
    the first failure in ``against``.
    """
    return f"{convolution} fails here with {words} outside {name}: {quoted(against, 1)[0]}."


def _id(words: str) -> str:
    return words.lower().replace(" ", "-")


def _without_library(run: Evidence, outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    questions = {case_key(each) for each in outcomes}
    return tuple(
        each for each in run.outcomes if each.setting == "vendor-off" and case_key(each) in questions
    )
