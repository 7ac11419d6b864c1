"""Facts that a child process reads from torch (``rocmprobe detect --deep``)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Optional

from rocmprobe.model.results import Fact
from rocmprobe.process import children
from rocmprobe.text.plain_text import first_words
from rocmprobe.text.reading import json_line

#: Timeout in seconds. On a slow machine, importing torch and starting a device can take a minute.
ASK_SECONDS = 120.0
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


def query_torch(timeout: float = ASK_SECONDS, environ: Optional[Mapping[str, str]] = None) -> dict[str, Fact]:
    """Return the facts ``deep.*``, which a child process reads from torch. Never raise an exception.

    - ``deep.arch_list``, ``deep.devices``: lists
    - ``deep.switches``: the values of switches in ``torch.backends``, keyed by name, e.g. "cudnn.enabled"
    - ``deep.library``: the version of MIOpen or cuDNN
    - ``deep.error``: exists if the child or the import of torch failed
    """
    command = [sys.executable, "-m", "rocmprobe.worker.device_query"]
    ended = children.run(command, os.environ if environ is None else environ, timeout)
    answers = dict(_answers(ended.out))
    failure = answers["import"].source if "import" in answers else _failure(ended)
    why = failure or "no answer"
    facts = {
        f"deep.{question}": answers.get(question, Fact(None, f"{source}: {why}"))
        for question, source in _SOURCES.items()
    }
    if failure:
        facts["deep.error"] = Fact(failure, "the child that queried torch")
    facts["deep.library"] = _library_version(facts)
    return facts


def _failure(ended: children.ProgramResult) -> Optional[str]:
    last = first_words(ended.last_error, 300)
    return f"{ended.failure}: {last}" if ended.failure and last else ended.failure


def _answers(out: str) -> Iterator[tuple[str, Fact]]:
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
    """Return MIOpen's version as MAJOR.MINOR.PATCH, or cuDNN's number unchanged."""
    # Import a backend only here, because no other fact needs a backend, and the import takes time.
    from rocmprobe.backends.gpu import format_version

    fact = facts["deep.library"]
    if facts["deep.hip"].value is None or not isinstance(fact.value, int):
        return fact
    return Fact(format_version(fact.value), fact.source)
