"""``run --verify``: tests the configuration that earlier results recommend."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from rocmprobe.checks import CHECKS, CONVOLUTIONAL_MODELS, CONVOLUTIONS
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.failures import counts, counts_sentence
from rocmprobe.judge.recommendation.configuration import isa_override
from rocmprobe.judge.recommendation.recommend import ordered_dtypes
from rocmprobe.knowledge.expectations import observed
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.model.options import RunOptions
from rocmprobe.model.results import NATIVE, BadInput, Results
from rocmprobe.model.results_file import from_json

#: Checks on which the recommendation depends, and the simpler checks that these need.
_VERIFIED = (
    "copy", "elementwise", "gemm", "im2col", "batch-norm", *CONVOLUTIONS, "gradients", "gradient-flow",
    "training-step", "autocast-step", *CONVOLUTIONAL_MODELS,
)  # fmt: skip
_NOT_WITH_VERIFY = (
    "--device", "--level", "--purpose", "--settings", "--minutes", "--problem", "--suite", "--shapes",
    "--only", "--skip", "--simulate", "--baseline", "--fail-on", "--resume", "--retry-aborted",
)  # fmt: skip
#: Rungs to skip under ``default`` if the recommended setting does not use the vendor library. Every run tests
#: ``default``, but these checks would prove nothing, and they could hang the GPU again.
_OF_THE_LIBRARY = ("conv", "train")


def refuse(given: Iterable[str]) -> None:
    """Raise BadInput if a given option conflicts with ``--verify``."""
    refused = [name for name in _NOT_WITH_VERIFY if name in given]
    if refused:
        raise BadInput(f"--verify repeats the checks in the given results; leave out {', '.join(refused)}")


def verification_options(requested: RunOptions, expected: Results) -> RunOptions:
    """Return the options of a run that tests only the configuration that ``expected`` recommends."""
    recommended = expected.recommendation
    setting = recommended.configuration.setting if recommended else None
    if recommended is None or setting is None:
        raise BadInput("--verify: these results recommend no configuration; there is nothing to verify")
    skipped = [name for name in CHECKS if name not in _VERIFIED]
    if recommended.verdict not in NATIVE:
        of_library = (name for name, check in CHECKS.items() if check.rung in _OF_THE_LIBRARY)
        skipped += [f"*/default/{name}/*" for name in of_library]
    ran = from_json(RunOptions, expected.options)
    if recommended.verdict != "cpu" and not ran.simulate:
        _same_override(isa_override(expected), os.environ)
    return replace(
        ran,
        # The comma makes the text a list of names. "default" alone would name a predefined set of settings.
        settings=f"{setting},",
        skip=(*skipped, *ran.skip),
        simulate=ran.simulate and ran.simulate.replace("<home>", str(Path.home())),
        redact=requested.redact,
        note=requested.note,
    )


def _same_override(before: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Raise BadInput if the ISA override in ``environ`` differs from the override in ``before``."""
    now = {name: value for name, value in environ.items() if name.startswith(OVERRIDE) and value}
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            was, is_now = (f"{name}={each[name]}" if name in each else f"no {name}" for each in (before, now))
            raise BadInput(
                f"--verify: these results were made with {was}, but now there is {is_now}; change it back"
            )


def verify(expected: Results, results: Results) -> tuple[bool, str]:
    """Return True if the recommended setting of ``expected`` passes all its checks in ``results``.

    Also return a sentence for the user.
    """
    assert expected.recommendation is not None
    name = expected.recommendation.configuration.setting
    came = Evidence(replace(results, outcomes=tuple(map(observed, results.outcomes))))
    dtype, purpose = ordered_dtypes(came)[0], results.purpose
    setting = next(each for each in results.settings if each.name == name)
    found = came.assess(setting, dtype, purpose)
    if not found.right:
        failed = ", ".join(outcome.id for outcome in (*found.against, *found.unproven)[:5])
        return False, f"{name} no longer works: {failed or 'no check could run'}"
    return True, f"{name} still works: {counts_sentence(counts(found.counted))}"
