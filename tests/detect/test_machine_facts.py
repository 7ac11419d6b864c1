"""Facts of this machine: variables, torch, and the promise that nothing is raised."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocmprobe import cli
from rocmprobe.detect import detect, machine
from rocmprobe.detect.stack import torch_build
from rocmprobe.detect.tree import LIMIT, Tree
from rocmprobe.knowledge import variables

WHEEL = """from typing import Optional
__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '1.13.1+rocm5.2'
debug = False
cuda: Optional[str] = None
git_version = '49444c3e546bf240bed24a101e747422d1f8a0ee'
hip: Optional[str] = '5.2.21151-afdc89f8'
"""


def test_no_torch_in_a_recorded_tree(build):
    found = build.detect()
    for name in ("torch.version", "torch.hip", "torch.cuda", "torch.kind", "torch.path", "python.version"):
        assert found.facts[name].value is None
        assert found.facts[name].source == "not looked up: --root"


@pytest.mark.parametrize("content", [None, "raise SystemExit('torch was imported')"])
def test_own_torch_that_is_broken(tmp_path, monkeypatch, content):
    """A folder without __init__.py is no torch; one that would fail on import is read all the same."""
    (tmp_path / "torch").mkdir()
    if content:
        (tmp_path / "torch" / "__init__.py").write_text(content)
        (tmp_path / "torch" / "version.py").write_text(WHEEL)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    facts = torch_build.read_build(Tree(Path("/"))).facts
    if content:
        assert facts["torch.version"].value == "1.13.1+rocm5.2"
    else:
        assert facts["torch.version"].value is None
        assert "left over from a removed package" in facts["torch.version"].source
    assert str(tmp_path) not in str(facts)


def test_a_recorded_tree_does_not_get_this_environment(build, monkeypatch):
    build.rx_5600_xt()
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "10.3.0")
    found = detect(build.root)
    assert found.gpus[0].effective_isa.value == "gfx1010"
    assert found.variables == {}


def test_absolute_links_stay_inside_the_tree(build, tmp_path):
    secret = tmp_path / "outside"
    secret.write_text("PRETTY_NAME=outside\n")
    build.link("etc/os-release", str(secret))
    assert build.detect().value("os.name") is None
    (build.root / "etc/os-release").unlink()
    build.link("etc/os-release", "../../../../../../../../.." + str(secret))
    assert build.detect().value("os.name") is None


def test_huge_file_is_read_in_part(build):
    build.file("proc/meminfo", b"MemTotal: 1024 kB\n" + b"x" * (2 * LIMIT))
    assert len(Tree(build.root).read("/proc/meminfo")) == LIMIT
    assert build.detect().value("memory.bytes") == 1024 * 1024


def test_a_broken_reader_costs_only_its_own_facts(build, monkeypatch):
    build.rx_5600_xt()

    def broken(*_):
        raise RuntimeError("no such luck")

    for name in ("system", "rocm"):
        monkeypatch.setattr(getattr(machine, name), "read_facts", broken)
    found = build.detect()
    assert found.value("errors.system") == "RuntimeError: no such luck"
    assert found.value("errors.rocm") == "RuntimeError: no such luck"
    assert found.gpus[0].native_isa.value == "gfx1010"
    assert "torch.version" in found.facts


@pytest.mark.parametrize("place", ["missing", "file"])
def test_root_that_is_no_folder(tmp_path, place):
    (tmp_path / "file").write_text("")
    found = detect(tmp_path / place, {})
    assert found.gpus == ()
    assert not [name for name in found.facts if name.startswith("errors.")]


def test_detect_imports_no_torch_and_little_else():
    code = (
        "import sys; from rocmprobe.detect import detect; machine = detect(); "
        "assert machine.facts['python.version'].value; "
        "print([m for m in ('torch', 'numpy', 'pytest', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_every_variable_of_the_gpu_stack_is_read_and_no_other(build):
    environ = {
        "MIOPEN_FIND_MODE": "1", "GPU_MAX_HW_QUEUES": "2", "HIPBLAS_WORKSPACE_CONFIG": ":0:0",
        "HSA_OVERRIDE_GFX_VERSION_2": "10.3.0", "TORCH_OF_NO_NAME": "1", "LD_LIBRARY_PATH": "/opt/rocm/lib",
        "HOME": "/home/x", "PATH": "/bin", "GIT_LOG_LEVEL": "3", "LOG_LEVEL": "3",
        "CUDA_HOME": "/usr/local/cuda",
    }  # fmt: skip
    assert list(build.detect(**environ).variables) == [
        "GPU_MAX_HW_QUEUES", "HIPBLAS_WORKSPACE_CONFIG", "HSA_OVERRIDE_GFX_VERSION_2", "LD_LIBRARY_PATH",
        "MIOPEN_FIND_MODE", "TORCH_OF_NO_NAME",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["MIOPN_FIND_MODE", "MIOPPEN_FIND_MODE", "ROCC_VISIBLE_DEVICES"])
def test_a_wrong_letter_in_the_prefix_is_seen(build, name):
    found = build.detect(**{name: "1"})
    assert found.value(f"variables.{name}") == variables.UNKNOWN
    assert "nearest" in found.facts[f"variables.{name}"].source


@pytest.mark.parametrize(
    "name",
    ["AMD_API_KEY", "TORCH_HUB_TOKEN", "ROCM_SECRET", "HIP_PASSWORD", "MIOPEN_KEYS", "AMD_CREDENTIALS"],
)
def test_what_may_be_a_secret_is_not_read(build, name):
    found = build.detect(**{name: "hunter2"})
    assert "hunter2" not in str(found)
    assert found.variables == {}


def test_labels_are_facts_with_a_reason(build):
    found = build.detect(MIOPEN_FIND_MODE="foo", MIOPEN_CACHE_DIR="/x", HSA_ENABLE_INTERRUPT="1")
    assert found.value("variables.MIOPEN_FIND_MODE") == variables.REJECTED
    assert "stoul" in found.facts["variables.MIOPEN_FIND_MODE"].source
    assert "src/find_controls.cpp" in found.facts["variables.MIOPEN_FIND_MODE"].source
    assert found.value("variables.MIOPEN_CACHE_DIR") == variables.FOLKLORE
    assert "MIOPEN_CUSTOM_CACHE_DIR" in found.facts["variables.MIOPEN_CACHE_DIR"].source
    assert found.value("variables.HSA_ENABLE_INTERRUPT") == variables.DEFAULT
    assert found.variables["MIOPEN_FIND_MODE"].source == "environment"


def test_the_release_of_the_tree_decides(build):
    build.file("opt/rocm/.info/version", "6.2.4-100\n")
    found = build.detect(ROC_ENABLE_PRE_VEGA="1", HIP_LAUNCH_BLOCKING="1")
    assert found.value("variables.ROC_ENABLE_PRE_VEGA") == variables.NOT_HERE
    assert found.value("variables.HIP_LAUNCH_BLOCKING") == f"{variables.EFFECTIVE}, {variables.ONCE}"


def test_the_terminal_shows_them_beside_the_values():
    environ = {"MIOPEN_FIND_MOD": "1", "COLUMNS": "160"}
    shown = CliRunner().invoke(cli.main, ["detect"], env=environ).output
    variables_part = shown.partition("Variables that are set")[2]
    # torch sets variables in the process that imports it. Their names can be longer.
    assert re.search("MIOPEN_FIND_MOD +1 ", variables_part)
    assert variables.UNKNOWN in variables_part
    assert "MIOPEN_FIND_MODE" in variables_part
    assert "variables.MIOPEN_FIND_MOD" not in shown


def test_list_variables_prints_every_name_whole():
    result = CliRunner().invoke(cli.main, ["list", "variables"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    lines = set(map(str.strip, result.output.splitlines()))
    assert {row.name for row in variables.variables()} <= lines
