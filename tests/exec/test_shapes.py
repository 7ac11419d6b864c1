"""`rocmprobe shapes` writes down what all processes of a program convolve, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launched import program, told
from runs import cli, environment, rocmprobe, wait_until

from rocmprobe.model.results import DIRECTIONS
from rocmprobe.model.shapes import read_shapes


def counts_of(entry: dict[str, Any]) -> dict[str, int]:
    return {name: entry.get("counts", {}).get(name, 0) for name in DIRECTIONS}


CONVOLVES = """
import multiprocessing, os, sys, torch
from torch.nn import functional as F
torch.set_num_threads(1)

def tensor(*sizes):
    return torch.ones(sizes, requires_grad=True)

def training(steps):
    for _ in range(steps):
        output = F.conv2d(tensor(2, 4, 9, 8), tensor(6, 2, 3, 3), tensor(6), stride=2, padding=1, groups=2)
        output.sum().backward()

if __name__ == "__main__":
    try:
        F.conv2d(tensor(2, 4, 9, 8), tensor(6, 3, 3, 3))
    except RuntimeError:
        pass
    training(2)
    with torch.no_grad():
        F.conv1d(tensor(1, 4, 9), tensor(6, 4, 3), dilation=2)
        F.conv_transpose2d(tensor(1, 4, 5, 5), tensor(4, 3, 3, 3), stride=2, output_padding=1)
        F.conv2d(tensor(1, 4, 5, 5).contiguous(memory_format=torch.channels_last), tensor(3, 4, 1, 1))
        network = torch.jit.script(torch.nn.Sequential(torch.nn.Conv2d(4, 5, 3), torch.nn.ReLU()).eval())
        torch.jit.optimize_for_inference(network)(tensor(1, 4, 6, 6))
    for method in ("fork", "spawn", "forkserver"):
        process = multiprocessing.get_context(method).Process(target=training, args=(1,))
        process.start()
        process.join()
    # The end of the block kills the workers.
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(training, (1, 1))
    sys.exit(3)
"""


def recorded(folder: Path, *command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return rocmprobe("shapes", "-o", "shapes.json", "--", *command, cwd=folder, **options)


def read(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "shapes.json").read_text("utf-8"))
    return data


@pytest.mark.thorough
def test_the_distinct_problems_of_all_processes(tmp_path: Path) -> None:
    path = program(tmp_path, CONVOLVES)
    done = recorded(tmp_path, sys.executable, "-W", "ignore", path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-1] == "rocmprobe: 5 problem(s) in shapes.json"
    data = read(tmp_path)
    assert list(data) == ["schema_version", "command", "torch", "problems"]
    assert data["schema_version"] == 1
    assert data["command"][-1] == str(path)
    assert len(data["torch"]) == 1
    assert list(read_shapes(tmp_path / "shapes.json").texts) == [
        "conv2d-fp32-n2-c4-i9x8-k6-f3x3-s2-p1-g2-bias", "conv1d-fp32-n1-c4-i9-k6-f3-d2",
        "conv_transpose2d-fp32-n1-c4-i5x5-k3-f3x3-s2-o1", "conv2d-fp32-n1-c4-i5x5-k3-f1x1-nhwc",
        "conv2d-fp32-n1-c4-i6x6-k5-f3x3-bias",
    ]  # fmt: skip
    first, *rest = data["problems"]
    assert first == {
        "kind": "conv2d", "dtype": "float32", "input": [2, 4, 9, 8], "weight": [6, 2, 3, 3], "stride": [2, 2],
        "padding": [1, 1], "dilation": [1, 1], "output_padding": [0, 0], "groups": 2, "bias": True,
        "channels_last": False, "device": "cpu", "counts": {"fwd": 7, "bwd-data": 7, "bwd-weights": 7},
    }  # fmt: skip
    assert [counts_of(each)["fwd"] for each in rest] == [1, 1, 1, 1]


TRAINS = """
import os, signal, sys, torch
torch.nn.functional.conv2d(torch.ones(1, 2, 5, 5), torch.ones(3, 2, 3, 3))
print("ready", flush=True)
{end}
"""
#: How a program ends, the exit code of rocmprobe, and who gets the signal.
ENDS = {
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -9, None),
    "os._exit": ("os._exit(9)", 9, None),
    "SIGTERM of rocmprobe": ("signal.pause()", -15, signal.SIGTERM),
    "SIGINT of rocmprobe": ("signal.pause()", -2, signal.SIGINT),
}


@pytest.mark.parametrize(
    "how",
    [
        "SIGKILL",
        *(pytest.param(how, marks=pytest.mark.thorough) for how in ENDS if how != "SIGKILL"),
    ],
)
def test_what_was_recorded_is_kept_however_it_ends(tmp_path: Path, how: str) -> None:
    end, code, number = ENDS[how]
    process = subprocess.Popen(
        shapes_of(program(tmp_path, TRAINS.format(end=end))), cwd=tmp_path, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    if number:
        os.killpg(process.pid, number)
    assert process.wait(30) == code
    process.stdout.close()
    assert [counts_of(each) for each in read(tmp_path)["problems"]] == [
        {"fwd": 1, "bwd-data": 0, "bwd-weights": 0}
    ]


@pytest.mark.thorough
def test_a_program_that_dies_in_a_convolution_shows_in_which(tmp_path: Path) -> None:
    text = """
import os, torch
from rocmprobe.bypass import dispatch, registration
class Fault(dispatch.Interceptor):
    def convolution(self, call, proceed):
        os.abort()
torch.nn.functional.conv1d(torch.ones(1, 2, 5), torch.ones(3, 2, 3))
registration.add_interceptor(Fault(), "cpu")
torch.nn.functional.conv2d(torch.ones(1, 2, 5, 5), torch.ones(3, 2, 3, 3))
"""
    done = recorded(tmp_path, "sh", "-c", f"ulimit -c 0; exec {sys.executable} {program(tmp_path, text)}")
    assert done.returncode == -6
    computed, died_in = read(tmp_path)["problems"]
    assert (computed["kind"], counts_of(computed)["fwd"]) == ("conv1d", 1)
    assert (died_in["kind"], set(counts_of(died_in).values())) == ("conv2d", {0})


@pytest.mark.thorough
def test_a_program_does_not_fail_for_being_watched(tmp_path: Path) -> None:
    text = """
import os, shutil, torch
shutil.rmtree(os.environ["ROCMPROBE_RECORD"])
shutil.rmtree(os.path.dirname(os.environ["ROCMPROBE_BYPASS_STATUS"]))
for size in (5, 6):
    torch.nn.functional.conv1d(torch.ones(1, 2, size), torch.ones(3, 2, 3))
raise SystemExit(6)
"""
    (tmp_path / "gone").mkdir()
    done = rocmprobe(
        "exec", "--bypass", "always", "--", sys.executable, "-m", "rocmprobe", "shapes", "-o", "shapes.json",
        "--", sys.executable, "-W", "ignore", program(tmp_path, text),
        cwd=tmp_path, env={"ROCMPROBE_BYPASS_STATUS": "gone/status"},
    )  # fmt: skip
    assert done.returncode == 6
    said = done.stderr.splitlines()
    assert ["stopped recording" in line for line in said] == [False, True, False, False]
    assert ["status could not be written" in line for line in said] == [False, False, True, False]


def shapes_of(path: Path) -> list[str]:
    return [sys.executable, "-m", "rocmprobe", "shapes", "-o", "shapes.json", "--", sys.executable, str(path)]


def test_a_program_that_convolves_nothing_gives_an_empty_list(tmp_path: Path) -> None:
    done = recorded(tmp_path, "true")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "rocmprobe: no problem(s) in shapes.json\n"
    assert read(tmp_path) == {"schema_version": 1, "command": ["true"], "torch": [], "problems": []}
    assert [path.name for path in tmp_path.iterdir()] == ["shapes.json"]


@pytest.mark.parametrize("output", ["no/such/folder/shapes.json", ".", "/dev/null", "/proc/shapes.json"])
def test_a_file_that_cannot_be_written_is_told_before(tmp_path: Path, output: str) -> None:
    done = cli("shapes", "-o", output, "--", "touch", "ran", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"rocmprobe: {output}: ")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.thorough
def test_shapes_under_a_configuration(tmp_path: Path) -> None:
    text = TRAINS.format(end="")
    done = rocmprobe(
        "exec", "--bypass", "always", "--", sys.executable, "-m", "rocmprobe", "shapes", "-o", "shapes.json",
        "--", sys.executable, program(tmp_path, text),
        cwd=tmp_path, env={"ROCMPROBE_BYPASS_STATUS": "status"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert read_shapes(tmp_path / "shapes.json").texts == ("conv2d-fp32-n1-c2-i5x5-k3-f3x3",)
    assert [sum(line["calls"].values()) for line in told(tmp_path / "status")] == [1]


@pytest.mark.thorough
def test_no_temporary_folder_stays(tmp_path: Path) -> None:
    done = recorded(tmp_path, "sh", "-c", "echo $ROCMPROBE_RECORD", env={"TMPDIR": str(tmp_path)})
    assert done.stdout.startswith(str(tmp_path))
    assert wait_until(lambda: not Path(done.stdout.strip()).exists(), 5)
