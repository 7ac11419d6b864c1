"""Names of the operators in the OpInfo database of the tested torch."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rocmprobe.checks.opinfo import NAME
from rocmprobe.engine.launch import Launch, inherited_variables
from rocmprobe.engine.options import RunOptions
from rocmprobe.process import children
from rocmprobe.text.reading import json_line

#: Timeout in seconds. Importing torch and its database takes seconds, or from a slow disk up to a minute.
_SECONDS = 120.0
_MOST_BYTES = 1 << 20
#: Variables that hide all GPUs, so that the import uses no GPU. The names of operators do not depend on a
#: GPU.
_NO_GPU = {"HIP_VISIBLE_DEVICES": "-1", "CUDA_VISIBLE_DEVICES": "-1"}


def sweeps(options: RunOptions) -> bool:
    """Return True if the run can include the operator sweep."""
    named = any(NAME in pattern for pattern in options.only)
    return named or (options.level != "quick" and not options.only)


def operators_of(device_type: str, launch: Launch) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the operators to test on ``device_type``, by dtype.

    Return {} if the database cannot be imported.
    """
    command = launch.command("rocmprobe.worker.device_query", "operators", device_type)
    environ = {**inherited_variables(os.environ), **launch.variables, **_NO_GPU}
    ended = children.run(command, environ, _SECONDS, _MOST_BYTES)
    for line in ended.out.splitlines():
        answer = json_line(line)
        if isinstance(answer, list) and answer[:1] == ["operators"] and isinstance(answer[1], dict):
            return {dtype: tuple(names) for dtype, names in answer[1].items()}
    return {}
