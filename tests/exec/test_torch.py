"""The bypass is there however a program comes by torch, and in all its processes."""

from __future__ import annotations

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest
from launched import CONVOLVES, executed, program, told
from runs import CHECKOUT, environment

ALWAYS = ("--bypass", "always", "--")

#: Ways to torch, each in a process that has none yet.
WAYS = f"""
import os, sys
ways = [
    "import importlib.util; importlib.util.find_spec('torch'); from torch import nn",
    "import importlib; importlib.import_module('torch.nn.functional')",
    "import a_package_that_has_torch.below",
    "import threading; it = threading.Thread(target=__import__, args=('torch',)); it.start(); it.join()",
]
for way in ways:
    if os.fork() == 0:
        exec(way)
        exec({CONVOLVES!r})
        sys.argv[:] = [way]
        sys.exit()
for way in ways:
    assert os.wait()[1] == 0
assert "torch" not in sys.modules
"""


@pytest.mark.thorough
def test_every_way_to_import_torch(tmp_path: Path) -> None:
    below = tmp_path / "a_package_that_has_torch" / "below.py"
    below.parent.mkdir()
    below.write_text("from torch.nn import functional")
    done = executed(
        tmp_path, *ALWAYS, sys.executable, program(tmp_path, WAYS), ROCMPROBE_BYPASS_STATUS="status"
    )
    assert done.returncode == 0, done.stderr
    lines = told(tmp_path / "status")
    assert len(lines) == 4
    assert all(sum(line["calls"].values()) == 3 and not line["native"] for line in lines), lines


CHILDREN = f"""
import multiprocessing, os, sys, torch

class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        with torch.no_grad():
            return torch.nn.Conv2d(3, 4, 3)(torch.ones(1, 3, 8, 8))

def child():
    exec({CONVOLVES!r}, {{}})

if __name__ == "__main__":
    # OpenMP's threads do not outlive a fork.
    torch.set_num_threads(1)
    child()
    for method in ("fork", "spawn", "forkserver"):
        process = multiprocessing.get_context(method).Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 0
    assert len(list(torch.utils.data.DataLoader(Images(), num_workers=1))) == 2
    if os.fork() == 0:
        sys.exit()
    os.wait()
    if os.fork() == 0:
        child()
        os._exit(0)
    os.wait()
"""


@pytest.mark.thorough
def test_every_process_tells_its_own_counts_at_its_end(tmp_path: Path) -> None:
    """Those of a fork do not hold what the parent had done; a process that ends by os._exit tells nothing."""
    done = executed(
        tmp_path, *ALWAYS, sys.executable, program(tmp_path, CHILDREN), ROCMPROBE_BYPASS_STATUS="status"
    )
    assert done.returncode == 0, done.stderr
    lines = told(tmp_path / "status")
    # multiprocessing has processes of its own besides, which import no torch.
    assert [sum(line["calls"].values()) for line in lines] == [3, 3, 3, 2, 0, 3]
    assert len({line["pid"] for line in lines}) == 6
    for line in lines:
        assert set(line) == {
            "pid",
            "command",
            "device",
            "calls",
            "native",
            "pytorch",
            "own_kernels",
            "inexact",
        }
        assert (line["device"], line["native"]) == ("cpu", {})
        assert line["command"] == [str(tmp_path / "program.py")]


@pytest.mark.thorough
def test_torchrun_and_its_children(tmp_path: Path) -> None:
    text = f"import os\n{CONVOLVES}\nos.write(1, f'rank {{os.environ[\"RANK\"]}}\\n'.encode())"
    launcher = ("-m", "torch.distributed.run", "--nproc_per_node", "2")
    done = executed(
        tmp_path,
        *ALWAYS,
        sys.executable,
        *launcher,
        program(tmp_path, text),
        ROCMPROBE_BYPASS_STATUS="status",
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["rank 0", "rank 1"]
    computed = [line for line in told(tmp_path / "status") if line["calls"]]
    assert [line["command"] for line in computed] == [[str(tmp_path / "program.py")]] * 2


FUSED = """
import importlib, os, sys, torch
try:
    importlib.reload(torch)
except RuntimeError as error:
    # torch 2 cannot be loaded twice, with or without rocmprobe, but has new dtypes from here on.
    assert "rocmprobe" not in str(error)
from rocmprobe import bypass
from torch import nn
from torch.utils import mkldnn

def calls():
    return sum(bypass.status()["calls"].values())

torch.manual_seed(0)
with torch.no_grad():
    for network, shape in (
        (nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), nn.ReLU()), (2, 4, 9, 8)),
        (nn.Conv1d(4, 6, 3, padding=1), (2, 4, 9)), (nn.Conv3d(4, 6, 3), (1, 4, 5, 5, 5)),
    ):
        network.eval()
        input = torch.randn(shape)
        expected = network(input)
        fused = torch.jit.optimize_for_inference(torch.jit.script(network))
        packed = mkldnn.to_mkldnn(network)
        for call in (lambda: fused(input), lambda: packed(input.to_mkldnn()).to_dense()):
            before = calls()
            torch.testing.assert_close(call(), expected, rtol=1e-4, atol=1e-5)
            assert calls() == before + 1, (network, call)
    before = calls()
    functional = nn.functional.conv3d(input.to_mkldnn(), network.weight, network.bias)
    torch.testing.assert_close(functional.to_dense(), expected, rtol=1e-4, atol=1e-5)
    assert calls() == before + 1
    transposed = nn.functional.conv_transpose2d(torch.ones(1, 2, 4, 4).to_mkldnn(), torch.ones(2, 3, 3, 3))
    assert (tuple(transposed.shape), calls()) == ((1, 3, 6, 6), before + 2)
print("done", torch.backends.mkldnn.enabled, os.environ["TORCHINDUCTOR_CPP_WEIGHT_PREPACK"])
"""


@pytest.mark.thorough
def test_fused_operators_are_switched_off_and_a_reload_does_no_harm(tmp_path: Path) -> None:
    done = executed(tmp_path, *ALWAYS, sys.executable, program(tmp_path, FUSED))
    assert done.stdout == "done True 0\n", done.stderr


#: A torch whose import fails the first time.
FAILS = """
import builtins
if not hasattr(builtins, "tried"):
    builtins.tried = True
    raise ImportError("libamdhip64.so.5: cannot open shared object file")
__version__ = "1.0"
"""


def test_a_torch_that_fails_at_import_fails_as_it_does(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(FAILS)
    text = """
try:
    import torch
except ImportError as error:
    print("caught", error, flush=True)
import sys
print("torch" in sys.modules)
import torch
print("never")
"""
    done = executed(tmp_path, *ALWAYS, sys.executable, program(tmp_path, text))
    caught, *rest = done.stdout.splitlines()
    assert caught.startswith("caught libamdhip64.so.5")
    assert rest == ["False"]
    # The second import succeeds, and that torch is too old for the bypass.
    assert done.returncode == 2
    assert "cannot be applied here" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_configuration_that_fails_in_a_child_fails_the_program(tmp_path: Path) -> None:
    """No try, no thread and no process of the program's own hides that it did not hold."""
    program(tmp_path, "__version__ = '1.0'", "torch.py")
    text = """
import subprocess, sys, threading
def work():
    try:
        import torch
    except BaseException:
        pass
    print("never")
if sys.argv[1:]:
    threading.Thread(target=work).start()
else:
    print(subprocess.run([sys.executable, __file__, "child"]).returncode)
"""
    done = executed(tmp_path, *ALWAYS, sys.executable, program(tmp_path, text))
    assert done.stdout == "2\n"
    assert done.stderr.count("cannot be applied here") == 1


@pytest.mark.thorough
def test_a_python_without_rocmprobe_and_what_it_needs(tmp_path: Path) -> None:
    """It has torch and what torch needs, and finds of rocmprobe what is for it alone."""
    place = tmp_path / "packages"
    place.mkdir()
    for folder in [*site.getsitepackages(), site.getusersitepackages()]:
        for entry in Path(folder).glob("*"):
            ours = (
                "rocmprobe",
                "_rocmprobe",
                "__editable__",
                "click",
                "msgspec",
                "rich",
                "pytest",
                "sitecustomize",
            )
            if not entry.name.startswith(ours) and entry.suffix != ".pth":
                (place / entry.name).symlink_to(entry)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    text = f"""
import importlib.util, sys
print([name for name in ("rocmprobe", "click", "msgspec") if importlib.util.find_spec(name)])
{CONVOLVES}
import rocmprobe
print(type(torch.__spec__.loader).__name__)
print(sorted(name for name in sys.modules if name.startswith("rocmprobe.") and name.count(".") == 1))
"""
    # Its own environment: the tests may be run with rocmprobe on PYTHONPATH.
    command = [tmp_path / "venv" / "bin" / "python", program(tmp_path, text)]
    runner = f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); from rocmprobe.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", runner, "exec", *ALWAYS, *map(str, command)], capture_output=True, text=True,
        env=environment({"PYTHONPATH": str(place), "ROCMPROBE_BYPASS_STATUS": str(tmp_path / "status")}),
        cwd=tmp_path, check=False,
    )  # fmt: skip
    packages = (
        "bypass",
        "exec",
        "geometry",
        "kernels",
        "lifetime",
        "output",
        "runtimes",
        "torch_flags",
        "user_cache",
    )
    names = [f"rocmprobe.{name}" for name in packages]
    assert done.stdout == f"[]\nSourceFileLoader\n{names}\n", done.stderr
    assert sum(told(tmp_path / "status")[0]["calls"].values()) == 3


def test_a_torch_that_is_there_before_any_sitecustomize(tmp_path: Path) -> None:
    """A .pth file may import it; this one is too old, which shows that it was looked at."""
    program(tmp_path, "__version__ = '1.0'", "torch.py")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (packages / "early.pth").write_text(f"import sys; sys.path.append({str(tmp_path)!r}); import torch\n")
    done = executed(tmp_path, *ALWAYS, tmp_path / "venv" / "bin" / "python", "-c", "print('never')")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be applied here" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("version", ["2", "3.8"])
def test_a_python_that_is_too_old_runs_what_needs_no_torch(tmp_path: Path, version: str) -> None:
    python = next(
        (folder / f"python{version}" for folder in map(Path, os.get_exec_path()) if
         (folder / f"python{version}").exists()), None,
    )  # fmt: skip
    if python is None or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no Python {version} here")
    program(tmp_path, "__version__ = '1.13.1'", "torch.py")
    for text, code, printed in (("print(1)", 0, "1\n"), ("import torch; print(1)", 2, "")):
        if version == "2" and code == 2:
            continue
        done = executed(tmp_path, *ALWAYS, python, "-c", text)
        assert (done.returncode, done.stdout) == (code, printed), done.stderr
        assert len(done.stderr.splitlines()) == (2 if code else 1)
        assert ("is too old" in done.stderr) is bool(code)
