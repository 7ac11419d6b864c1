"""Ultralytics YOLOv8 trains under the bypass, its script unchanged, and learns what it learns without."""

from __future__ import annotations

import csv
import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from launched import program, told
from runs import environment, rocmprobe

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ultralytics") is None, reason="ultralytics is not installed"
)

EPOCHS, IMAGES = 2, 32
TRAINS = """
import sys
from ultralytics import YOLO

YOLO("yolov8n.yaml").train(
    data="data.yaml", epochs=2, imgsz=64, batch=8, device="cpu", workers=0, seed=0, amp=False, plots=False,
    pretrained=False, project=sys.argv[1], name="run",
)
"""

#: A square of one class or a disc of the other, on noise.
DRAWS = """
import pathlib, cv2, numpy
random = numpy.random.default_rng(0)
for folder in ("images", "labels"):
    pathlib.Path("data", folder).mkdir(parents=True)
for number in range(32):
    image = random.integers(0, 80, (64, 64, 3), dtype=numpy.uint8)
    kind, (x, y), half = number % 2, random.integers(20, 44, 2).tolist(), int(random.integers(8, 16))
    if kind:
        cv2.circle(image, (x, y), half, (255, 60, 60), -1)
    else:
        cv2.rectangle(image, (x - half, y - half), (x + half, y + half), (60, 255, 60), -1)
    cv2.imwrite(f"data/images/{number}.png", image)
    side = 2 * half / 64
    pathlib.Path(f"data/labels/{number}.txt").write_text(f"{kind} {x / 64} {y / 64} {side} {side}")
pathlib.Path("data.yaml").write_text(
    f"path: {pathlib.Path('data').resolve()}\\ntrain: images\\nval: images\\nnames: [square, disc]\\n"
)
"""

#: A sitecustomize of the user's own: where torchvision's operators were built for another torch, the one that
#: detection needs is written in Python.
OPERATORS = """
import glob, importlib.util, os
import torch

folder = os.path.dirname(importlib.util.find_spec("torchvision").origin)
try:
    for file in glob.glob(os.path.join(folder, "_C*.so")):
        torch.ops.load_library(file)
except OSError:
    pass
if not hasattr(torch.ops.torchvision, "nms"):
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

    def nms(dets, scores, iou_threshold):
        left, kept = scores.argsort(descending=True), []
        while len(left):
            kept.append(left[0])
            first, others = dets[left[0]], dets[left[1:]]
            sides = torch.minimum(first[2:], others[:, 2:]) - torch.maximum(first[:2], others[:, :2])
            common = sides.clamp(min=0).prod(1)
            areas = (first[2:] - first[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1)
            left = left[1:][common / (areas - common) <= iou_threshold]
        return torch.stack(kept) if kept else left

    library.impl("nms", nms, "CPU")
    from torchvision import extension

    extension._has_ops = lambda: True
"""


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    """What keeps the training to itself, and the same every time."""
    program(tmp_path, OPERATORS, "sitecustomize.py")
    env = environment()
    return {
        "PYTHONPATH": ":".join(filter(None, [str(tmp_path), env.get("PYTHONPATH")])), "OMP_NUM_THREADS": "2",
        "YOLO_CONFIG_DIR": str(tmp_path), "YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false",
        "CUDA_VISIBLE_DEVICES": "-1",
    }  # fmt: skip


def losses(folder: Path) -> list[float]:
    """Those of boxes, classes and distributions, epoch by epoch."""
    with (folder / "run" / "results.csv").open() as stream:
        rows = [{name.strip(): value for name, value in row.items()} for row in csv.DictReader(stream)]
    assert len(rows) == EPOCHS
    return [float(row[f"train/{name}_loss"]) for row in rows for name in ("box", "cls", "dfl")]


def test_training_under_the_bypass(tmp_path: Path, environ: Mapping[str, str]) -> None:
    subprocess.run([sys.executable, program(tmp_path, DRAWS, "draw.py")], cwd=tmp_path, check=True)
    path = program(tmp_path, TRAINS, "train.py")
    native = subprocess.run(
        [sys.executable, path, tmp_path / "native"], cwd=tmp_path, env=environment(environ),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert native.returncode == 0, native.stderr
    status = {"ROCMPROBE_BYPASS_STATUS": "status"}
    done = rocmprobe(
        "exec", "--bypass", "always", "--", sys.executable, path, tmp_path / "bypass",
        cwd=tmp_path, env={**environ, **status},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    line = next(line for line in told(tmp_path / "status") if line["command"][0] == str(path))
    assert line["native"] == {}
    # 64 convolutions, each at least forward and by its weights, in four steps an epoch.
    assert sum(line["calls"].values()) >= 64 * 2 * EPOCHS * IMAGES // 8
    ours, theirs = losses(tmp_path / "bypass"), losses(tmp_path / "native")
    assert ours == pytest.approx(theirs, rel=1e-3)
