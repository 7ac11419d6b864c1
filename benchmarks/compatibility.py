"""Do real models train under the bypass as they do natively?

Each case of ``real_models.py`` runs in processes of its own, natively and under ``rocmprobe exec --bypass
always``. Compared are the losses of three steps and the norm of the first gradient. Needs timm and diffusers
beside torch; torchvision may be missing::

    python benchmarks/compatibility.py -o benchmarks/results/compatibility.json
    python benchmarks/compatibility.py --only timm --only DDP

The exit code is 1 where a case fails, losses differ by more than the limit of the dtype, or a convolution was
left to PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from real_models import CASES

from rocmprobe.bypass.choices import measures
from rocmprobe.detect import detect

#: Relative, of a loss. Three steps of training carry the rounding of the first ones on.
LIMITS = {"float32": 1e-4, "bfloat16": 2e-2, "float16": 5e-3}
_SCRIPT = Path(__file__).with_name("real_models.py")
_BYPASS = ("-m", "rocmprobe", "exec", "--bypass", "always", "--", sys.executable)
_SECONDS = 300


def losses(case: str, folder: Path, before: Sequence[str] = ()) -> list[float]:
    """Raises RuntimeError with the end of what a failed training said."""
    file = folder / "losses.json"
    file.unlink(missing_ok=True)
    environ = {**os.environ, "ROCMPROBE_BYPASS_STATUS": str(folder / "status.jsonl")}
    command = [sys.executable, *before, str(_SCRIPT), case, str(file)]
    try:
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not ready after {_SECONDS} s") from None
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-800:])
    found: list[float] = json.loads(file.read_text("utf-8"))
    return found


def apart(some: Sequence[float], others: Sequence[float]) -> float:
    """The largest difference of two losses, relative to the loss."""
    return max(abs(one - other) / max(abs(one), 1e-6) for one, other in zip(some, others))


def compared(case: str) -> dict[str, Any]:
    dtype = CASES[case][1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        difference = apart(losses(case, folder), losses(case, folder, _BYPASS))
        lines = [json.loads(line) for line in (folder / "status.jsonl").read_text("utf-8").splitlines()]
    counts: dict[str, Counter[str]] = {"calls": Counter(), "native": Counter()}
    for line in lines:
        for kind, total in counts.items():
            total.update(line[kind])
    return {
        "dtype": dtype, "difference": difference, "processes": len(lines), **counts,
        "equal": difference <= LIMITS[dtype] and not counts["native"] and bool(counts["calls"]),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", help="cases whose name holds this text; more than once")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    cases = [case for case in CASES if not options.only or any(text in case for text in options.only)]
    needed = [name for name in ("timm", "diffusers") if any(case.startswith(name) for case in cases)]
    for package in needed:
        if not importlib.util.find_spec(package):
            raise SystemExit(
                f"{package} is not installed: pip install {package} --no-deps, and what it needs"
            )
    machine = detect()
    found: dict[str, Any] = {}
    results = {
        "what": "largest relative difference from native, of the losses of three steps of SGD and "
        "of the norm of the first gradient",
        "torch": str(torch.__version__), **{package: version(package) for package in needed},
        "cpu": machine.value("cpu.name"), "threads": torch.get_num_threads(), "measures": measures(),
        "limits": LIMITS, "cases": found,
    }  # fmt: skip
    for case in cases:
        try:
            found[case] = row = compared(case)
            said = f"{row['difference']:.1e} {dict(row['native']) or ''}"
        except RuntimeError as error:
            found[case] = row = {"equal": False, "failed": str(error)}
            said = row["failed"]
        print("ok " if row["equal"] else "NOT EQUAL", case, said, flush=True)
        if options.output:
            options.output.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    sys.exit(0 if all(row["equal"] for row in found.values()) else 1)


if __name__ == "__main__":
    main()
