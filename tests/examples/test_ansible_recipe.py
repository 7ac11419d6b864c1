"""The playbook for Ansible: what it calls, and where Ansible is installed a play over simulated machines."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import runs
import yaml

from rocmprobe.cli.base import command

RECIPE = Path(__file__).parents[2] / "examples" / "ansible"
(PLAY,) = yaml.safe_load((RECIPE / "rocmprobe.yml").read_text("utf-8"))
INVENTORY = yaml.safe_load((RECIPE / "inventory.yml").read_text("utf-8"))
needs_ansible = pytest.mark.skipif(not shutil.which("ansible-playbook"), reason="Ansible is not installed")


def tasks() -> list[dict[str, Any]]:
    return list(PLAY["tasks"])


def argv(task: dict[str, Any]) -> str:
    return str(task.get("ansible.builtin.command", {}).get("argv", ""))


def test_each_command_on_a_machine_has_a_time_limit_that_ends_its_children() -> None:
    remote = [task for task in tasks() if argv(task) and "delegate_to" not in task]
    assert [task["name"].split(",")[0] for task in remote] == ["Check", "Run"]
    for task in remote:
        assert "['timeout', '--kill-after=" in argv(task)
        # For a connection that hangs; async would leave the children.
        assert "timeout" in task
        assert "async" not in task


def test_rocmprobe_takes_what_the_playbook_calls() -> None:
    called = []
    for task in tasks():
        if argv(task):
            words = re.findall(r"'([^']*)'", argv(task).partition("rocmprobe")[2])
            called.append(
                [each.replace("reports/", "reports/x") for each in words if each not in ("/", ".html")]
            )
    assert [name for name, *_ in called] == ["check", "run", "table"]
    for name, *arguments in called:
        filled = [part for each in arguments for part in ([each, "50"] if each == "--budget" else [each])]
        filled += ["x.html"] if filled and filled[-1] == "-o" else []
        command(name).make_context(name, ["results", *filled] if name == "table" else filled)


def test_the_inventory_sets_every_variable_of_the_playbook() -> None:
    text = (RECIPE / "rocmprobe.yml").read_text("utf-8")
    registered = set(re.findall(r"register: (\w+)", text)) | {"rocmprobe_name"}
    used = set(re.findall(r"\brocmprobe(?:_\w+)?\b", " ".join(re.findall(r"\{\{(.*?)\}\}", text, re.DOTALL))))
    assert used - registered == {name for name in INVENTORY["gpus"]["vars"] if name.startswith("rocmprobe")}


@needs_ansible
@pytest.mark.thorough
def test_a_machine_that_fails_hangs_or_is_gone_keeps_no_other_out_of_the_table(
    tmp_path: Path,
) -> None:
    hanging = {"library": "miopen", "effect": "hang"}
    machines = {
        "works": "healthy-gfx1100",
        "fails": "rdna1-rocm52-conv-dead",
        "hangs": "conv-hang",
        # Hangs for longer than the playbook waits.
        "stuck": str(runs.machine_file(tmp_path / "stuck.toml", hanging, first_call=600.0)),
    }
    few = [
        "--only",
        "convolution",
        "--settings",
        "default",
        "--problem",
        runs.PROBLEM,
        "--purpose",
        "inference",
    ]
    mark = str(tmp_path / "rocmprobe")
    Path(mark).write_text(f'#!/bin/sh\nexec {sys.executable} -m rocmprobe "$@"\n', "utf-8")
    Path(mark).chmod(0o755)
    # Nobody listens there; the first of the inventory is whom Ansible takes for what is done once.
    gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    hosts: dict[str, dict[str, Any]] = {"gone": gone}
    for name, machine in machines.items():
        (tmp_path / "machines" / name).mkdir(parents=True)
        hosts[name] = {
            "rocmprobe_check_arguments": ["--simulate", machine],
            "rocmprobe_run_arguments": ["--simulate", machine, *few],
        }
    hosts["stuck"]["rocmprobe_run_limit"] = 20
    variables = {
        **INVENTORY["gpus"]["vars"],
        "ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3",
        "rocmprobe": mark, "rocmprobe_here": mark, "rocmprobe_check_limit": 30,
        "rocmprobe_folder": f"{tmp_path}/machines/{{{{ inventory_hostname }}}}",
        "rocmprobe_gathered": str(tmp_path / "gathered"), "rocmprobe_table_arguments": ["--simulated"],
    }  # fmt: skip
    del variables["ansible_user"]
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(yaml.safe_dump({"gpus": {"hosts": hosts, "vars": variables}}), "utf-8")
    env = {
        **os.environ, "LC_ALL": "C.UTF-8", "ANSIBLE_HOME": str(tmp_path / "ansible"), "ANSIBLE_NOCOLOR": "1",
    }  # fmt: skip
    ended = subprocess.run(
        ["ansible-playbook", "-i", inventory, RECIPE / "rocmprobe.yml"],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2, ended.stdout + ended.stderr
    (gathered,) = [each for each in (tmp_path / "gathered").iterdir() if each.is_dir()]
    assert {each.name for each in gathered.iterdir()} == set(machines)
    assert json.loads((gathered / "stuck" / "results.json").read_text("utf-8"))["partial"] is True
    assert gathered.with_suffix(".html").exists()
    failed = {
        name
        for name, count in re.findall(r"^(\w+) .*failed=(\d)", ended.stdout, re.MULTILINE)
        if count != "0"
    }
    assert failed == {"gone", "fails", "hangs", "stuck"}
    verdicts = dict(re.findall(r'^ok: \[(\w+)\] => {\n *"msg": "(\w+):', ended.stdout, re.MULTILINE))
    assert verdicts == {"works": "ok", "fails": "problem", "hangs": "problem", "stuck": "problem"}
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout
    assert left == ""
