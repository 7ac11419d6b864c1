"""Test that real models train under the bypass as they do natively.

The cases of ``real_models.py`` run in two processes, one of them under ``rocmprobe exec --bypass always``.
The benchmark compares the losses of three steps and the norm of the first gradient. It needs timm and
diffusers in addition to torch. torchvision can be missing::

    python benchmarks/compatibility.py -o benchmarks/results/compatibility.json
    python benchmarks/compatibility.py --only timm --only DDP

The exit code is 1 if a case fails, if losses differ by more than the limit of the dtype, or if PyTorch
computed a convolution instead of the bypass.
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

from rocmprobe.bypass.choice.choices import measures
from rocmprobe.detect import detect

#: Relative limits of a loss. Three training steps accumulate the rounding of the first steps.
LIMITS = {"float32": 1e-4, "bfloat16": 2e-2, "float16": 5e-3}
_SCRIPT = Path(__file__).with_name("real_models.py")
_BYPASS = ("-m", "rocmprobe", "exec", "--bypass", "always", "--", sys.executable)


def trained(cases: Sequence[str], folder: Path, before: Sequence[str] = ()) -> dict[str, Any]:
    """Return the line of each case. If a process fails, raise SystemExit with the end of its stderr."""
    file = folder / "lines.jsonl"
    environ = {**os.environ, "ROCMPROBE_BYPASS_STATUS": str(folder / "status.jsonl")}
    command = [sys.executable, *before, str(_SCRIPT), str(file), *cases]
    done = subprocess.run(command, env=environ, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode}: {done.stderr.strip()[-800:]}")
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return {line["case"]: line for line in lines}


def apart(some: Sequence[float], others: Sequence[float]) -> float:
    """Return the largest difference of two losses, relative to the loss."""
    return max(abs(one - other) / max(abs(one), 1e-6) for one, other in zip(some, others))


def compared(dtype: str, native: dict[str, Any], bypass: dict[str, Any]) -> dict[str, Any]:
    for name, line in (("native", native), ("bypass", bypass)):
        if "failed" in line:
            return {"equal": False, "failed": f"{name}: {line['failed']}"}
    difference = apart(native["losses"], bypass["losses"])
    left = bypass["status"]["native"]
    return {
        "dtype": dtype, "difference": difference, **bypass["status"],
        "equal": difference <= LIMITS[dtype] and not left,
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
    with tempfile.TemporaryDirectory() as name:
        native, bypass = trained(cases, Path(name)), trained(cases, Path(name), _BYPASS)
        processes = [json.loads(line) for line in Path(name, "status.jsonl").read_text("utf-8").splitlines()]
    found = {case: compared(CASES[case][1], native[case], bypass[case]) for case in cases}
    for case, row in found.items():
        said = row.get("failed") or f"{row['difference']:.1e} {row['native'] or ''}"
        print("ok " if row["equal"] else "NOT EQUAL", case, said)
    # The cases of DDP and of the DataLoader start further processes.
    left = sum((Counter(each["native"]) for each in processes), Counter())
    print(f"{len(processes)} processes; left to PyTorch: {dict(left) or 'nothing'}")
    results = {
        "what": "largest relative difference from native, of the losses of three steps of SGD and "
        "of the norm of the first gradient",
        "torch": str(torch.__version__), **{package: version(package) for package in needed},
        "cpu": machine.value("cpu.name"), "threads": torch.get_num_threads(), "measures": measures(),
        "limits": LIMITS, "processes": len(processes), "native": left, "cases": found,
    }  # fmt: skip
    if options.output:
        options.output.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    sys.exit(0 if not left and all(row["equal"] for row in found.values()) else 1)


if __name__ == "__main__":
    main()
