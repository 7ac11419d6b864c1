"""Which environment variables become facts, and what is said of them."""

from __future__ import annotations

import re

from click.testing import CliRunner
from rows import every_row

from rocmprobe import cli
from rocmprobe.knowledge import variables


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


@every_row("name", ["MIOPN_FIND_MODE", "MIOPPEN_FIND_MODE", "ROCC_VISIBLE_DEVICES"])
def test_a_wrong_letter_in_the_prefix_is_seen(build, name):
    found = build.detect(**{name: "1"})
    assert found.value(f"variables.{name}") == variables.UNKNOWN
    assert "nearest" in found.facts[f"variables.{name}"].source


@every_row(
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
    # torch sets variables of its own in the process that imports it, whose names may be longer.
    assert re.search("MIOPEN_FIND_MOD +1 ", variables_part)
    assert variables.UNKNOWN in variables_part
    assert "MIOPEN_FIND_MODE" in variables_part
    assert "variables.MIOPEN_FIND_MOD" not in shown


def test_list_variables_prints_every_name_whole():
    result = CliRunner().invoke(cli.main, ["list", "variables"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    lines = set(map(str.strip, result.output.splitlines()))
    assert {row.name for row in variables.variables()} <= lines
