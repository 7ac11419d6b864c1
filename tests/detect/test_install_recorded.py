"""`rocmprobe install` for the recorded machines that lie beside the repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_recorded_machines import FIXTURES, mount

from rocmprobe.cli import main
from rocmprobe.model.results import to_json

pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not on this machine")


@pytest.mark.parametrize(
    ("case", "stack", "command"),
    [
        ("kfd-DERIVED-rdna1-rx5600xt", "amd-stable-10.1", "torch[device-gfx1010]==2.14.0+rocm10.1.0"),
        ("kfd-DERIVED-rdna1-rx5500xt", "official-rocm5.2", "export HSA_OVERRIDE_GFX_VERSION=10.3.0"),
        ("kfd-k8s-gfx90x-mi25-x2", "official-rocm6.3", "torch==2.7.1+rocm6.3"),
        ("kfd-k8s-mi210-x8", "amd-stable-10.1", "torch[device-gfx90a]"),
        ("kfd-tinygrad-mock-7900xtx", "amd-stable-10.1", "torch[device-gfx1100]"),
        ("sysfs-lact-phoenix", "amd-stable-10.1", "torch[device-gfx1103]"),
        ("sysfs-lact-rx580", "rocm-for-rx580", "docker.io/woodrex/rocm634-torch26-gfx803"),
        ("sysfs-lact-rx6600xt", "amd-stable-7.14", "torch[device-gfx1032]==2.12.0+rocm7.14.0"),
        ("sysfs-lact-rx9070", "amd-stable-10.1", "torch[device-gfx1201]"),
        ("sysfs-lact-vega56", "official-rocm6.3", "torch==2.7.1+rocm6.3"),
    ],
)
def test_the_first_stack(build, tmp_path: Path, case: str, stack: str, command: str) -> None:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(to_json(mount(build, case).detect())))
    done = CliRunner().invoke(main, ["install", "--facts", str(path), "--json"])
    assert done.exit_code == 0, done.output
    first = json.loads(done.output)["stacks"][0]
    assert first["stack"] == stack
    assert command in json.dumps(first["steps"])
