"""Facts that a child process reads from torch (``rocmprobe detect --deep``)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Optional

from rocmprobe.model.results import Fact
from rocmprobe.process import children
from rocmprobe.text.reading import json_line

#: Importing torch from a cold disk and starting a device takes a minute on a slow machine.
ASK_SECONDS = 120.0
#: The queries of ``rocmprobe.worker.device_query`` and the source of each result.
_SOURCES = {
    "version": "torch.__version__",
    "hip": "torch.version.hip",
    "cuda": "torch.version.cuda",
    "library": "torch.backends.cudnn.version()",
    "arch_list": "torch.cuda.get_arch_list()",
    "available": "torch.cuda.is_available()",
    "device_count": "torch.cuda.device_count()",
    "devices": "torch.cuda.get_device_properties()",
    "switches": "torch.backends",
}


def ask_torch(timeout: float = ASK_SECONDS, environ: Optional[Mapping[str, str]] = None) -> dict[str, Fact]:
    """Return the facts ``deep.*``, one per query, from torch in a child of at most ``timeout`` seconds.

    ``deep.arch_list`` and ``deep.devices`` are lists. ``deep.switches`` is a dictionary keyed by the name
    below ``torch.backends``. ``deep.library`` is the version of MIOpen or cuDNN. ``deep.error`` exists if the
    child failed or torch could not be imported. Never raises. A query without a result is a fact without a
    value, whose source says why.
    """
    command = [sys.executable, "-m", "rocmprobe.worker.device_query", "torch"]
    ended = children.run(command, os.environ if environ is None else environ, timeout)
    answers = dict(_answers(ended.out))
    failure = answers["import"].source if "import" in answers else _failure(ended)
    why = failure or "no answer"
    facts = {
        f"deep.{question}": answers.get(question, Fact(None, f"{source}: {why}"))
        for question, source in _SOURCES.items()
    }
    if failure:
        facts["deep.error"] = Fact(failure, "the child that asked torch")
    facts["deep.library"] = _library_version(facts)
    return facts


def _failure(ended: children.Ended) -> Optional[str]:
    """Return how the child failed, with the last line of its stderr, or None."""
    last = (ended.err.strip().splitlines() or [""])[-1][:300]
    return f"{ended.failure}: {last}" if ended.failure and last else ended.failure


def _answers(out: str) -> Iterator[tuple[str, Fact]]:
    """Yield queries and facts from the child's lines. Libraries may print other lines in between."""
    for line in out.splitlines():
        try:
            question, answer, error = json_line(line)
        except (ValueError, TypeError):
            continue
        if question == "import":
            yield question, Fact(None, f"import torch: {error}")
        elif isinstance(question, str) and question in _SOURCES:
            source = _SOURCES[question]
            yield question, Fact(None, f"{source}: {error}") if error else Fact(answer, source)


def _library_version(facts: Mapping[str, Fact]) -> Fact:
    """Return MIOpen's version as MAJOR.MINOR.PATCH, or cuDNN's number unchanged.

    torch packs MIOpen's version into one number.
    """
    # Imported here because no other fact needs a backend, and every start of detect would pay for the import.
    from rocmprobe.backends.gpu import unpacked

    fact = facts["deep.library"]
    if facts["deep.hip"].value is None or not isinstance(fact.value, int):
        return fact
    return Fact(unpacked(fact.value), fact.source)
