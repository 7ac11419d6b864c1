"""Output of the benchmarks: figures are printed, and written to the file that ``-o`` names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional


def publish(figures: Mapping[str, Any], output: Optional[Path]) -> None:
    text = json.dumps(figures, indent=1)
    print(text)
    if output:
        output.write_text(text + "\n", "utf-8")
