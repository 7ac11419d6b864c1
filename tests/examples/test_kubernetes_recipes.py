"""The manifests for Kubernetes and the plugin for node-problem-detector: what they promise, their scripts as
a shell runs them, and the schemas of both where a validator is installed."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rocmprobe.cli.base import command

RECIPES = Path(__file__).parents[2] / "examples" / "kubernetes"
MANIFESTS = tuple(sorted(RECIPES.glob("*.yaml")))
PLUGIN = json.loads((RECIPES / "npd-rocmprobe.json").read_text("utf-8"))
SCHEMA = json.loads((Path(__file__).parent / "npd_custom_plugin.schema.json").read_text("utf-8"))


def documents(name: str) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((RECIPES / name).read_text("utf-8"))}


def pod_of(name: str) -> dict[str, Any]:
    """The pod's part of the one workload in a file."""
    (workload,) = [each for each in documents(name).values() if "template" in each.get("spec", {})]
    pod: dict[str, Any] = workload["spec"]["template"]["spec"]
    return pod


def seconds(duration: str) -> float:
    """Of a duration in Go's notation."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|[smh])", duration))


def script(name: str, folder: Path, **programs: str) -> str:
    """The shell script of a pod, its volumes in ``folder``, stand-ins for ``programs`` on its PATH."""
    for program, body in programs.items():
        path = folder / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
        path.chmod(0o755)
    (container,) = pod_of(name)["containers"]
    mounted = {each["mountPath"]: folder / each["name"] for each in container["volumeMounts"]}
    for path in mounted.values():
        path.mkdir()
    text = re.sub(rf"({'|'.join(mounted)})\b", lambda found: str(mounted[found[1]]), container["args"][0])
    return f"export PATH={folder / 'bin'}:$PATH\n{text}"


def files_in(log: str) -> dict[str, str]:
    """Return the files of the archive in a log, unpacked by the command of the README."""
    command = "sed -n '/^-----BEGIN RESULTS/,/^-----END RESULTS/{//!p}'"
    assert command in (RECIPES / "README.md").read_text("utf-8")
    text = subprocess.run(["sh", "-c", command], input=log, capture_output=True, text=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(text))) as archive:
        return {
            member.name: (archive.extractfile(member) or io.BytesIO()).read().decode()
            for member in archive
            if member.isfile()
        }


def test_the_job_has_one_gpu_a_deadline_and_no_more_rights_than_it_needs() -> None:
    job, pod = documents("job.yaml")["Job"]["spec"], pod_of("job.yaml")
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["amd.com/gpu"] == 1
    assert pod["restartPolicy"] == "Never"
    assert job["backoffLimitPerIndex"] == 0
    # At the deadline of a job its pods are deleted, and their logs with them.
    assert "activeDeadlineSeconds" not in job
    assert pod["activeDeadlineSeconds"] >= 600
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["supplementalGroups"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert not [each for each in pod["volumes"] if "hostPath" in each]


@pytest.mark.parametrize("name", ["daemonset.yaml", "node-problem-detector.yaml"])
def test_what_stays_on_a_node_takes_no_gpu_from_others(name: str) -> None:
    pod = pod_of(name)
    for container in pod["containers"]:
        assert not [each for part in container["resources"].values() for each in part if "gpu" in each]
    assert pod["nodeSelector"] == {"feature.node.kubernetes.io/amd-gpu": "true"}
    # To see whether somebody else has the card.
    assert pod["hostPID"] is True


def test_the_daemonset_is_not_root_and_has_no_token() -> None:
    pod = pod_of("daemonset.yaml")
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False


def test_the_log_of_the_job_holds_the_results_and_its_code_is_that_of_the_run(tmp_path: Path) -> None:
    stand_in = (
        'echo "asked: $*"; for last; do :; done; mkdir "$last"; echo "{}" > "$last/results.json"; exit 4'
    )
    text = script("job.yaml", tmp_path, rocmprobe=stand_in)
    ended = subprocess.run(
        ["sh", "-c", text], env={"NODE": "n1"}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 4
    assert files_in(ended.stdout) == {"n1/results.json": "{}\n"}


def test_at_its_deadline_the_job_has_what_the_run_had_written(tmp_path: Path) -> None:
    stand_in = (
        'for last; do :; done; mkdir "$last"\n'
        "trap 'kill $!; sleep 0.3; echo partial > \"$last/results.json\"; exit 130' TERM\n"
        f'touch "{tmp_path}/started"; sleep 60 & wait $!'
    )
    text = script("job.yaml", tmp_path, rocmprobe=stand_in)
    shell = subprocess.Popen(["sh", "-c", text], env={"NODE": "n1"}, stdout=subprocess.PIPE, text=True)
    wait_for(tmp_path / "started")
    shell.send_signal(signal.SIGTERM)
    log, _ = shell.communicate(timeout=30)
    assert shell.returncode == 130
    assert files_in(log) == {"n1/results.json": "partial\n"}


def wait_for(path: Path) -> None:
    end = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < end, f"{path} was never made"
        time.sleep(0.02)


def test_the_daemonset_checks_again_and_ends_at_once(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    text = script(
        "daemonset.yaml",
        tmp_path,
        rocmprobe=f'echo "$*" >> "{calls}"',
        sleep=f'[ $(wc -l < "{calls}") -lt 3 ] && exec /bin/sleep 0.02; exec /bin/sleep "$@"',
    )
    shell = subprocess.Popen(["sh", "-c", text])
    end = time.monotonic() + 30
    while not calls.exists() or len(calls.read_text("utf-8").splitlines()) < 3:
        assert time.monotonic() < end
        time.sleep(0.02)
    shell.send_signal(signal.SIGTERM)
    assert shell.wait(timeout=30) == 0
    assert set(calls.read_text("utf-8").splitlines()) == {
        f"check --device cuda:0 --budget 50 --metrics {tmp_path / 'metrics'}/rocmprobe.prom"
    }


def test_the_config_map_holds_the_plugin() -> None:
    held = documents("node-problem-detector.yaml")["ConfigMap"]["data"]
    assert held["rocmprobe.json"] == (RECIPES / "npd-rocmprobe.json").read_text("utf-8")
    pod = pod_of("node-problem-detector.yaml")
    (container,) = pod["containers"]
    (file,) = [each.split("=")[1] for each in container["command"] if "custom-plugin" in each]
    assert file == f"{container['volumeMounts'][0]['mountPath']}/rocmprobe.json"


def test_the_plugin_follows_its_schema() -> None:
    jsonschema.validate(PLUGIN, SCHEMA)
    for wrong in (
        {**PLUGIN, "pluginConfg": {}},
        {**PLUGIN, "pluginConfig": {**PLUGIN["pluginConfig"], "timeout": 60}},
        {
            **PLUGIN,
            "rules": [{key: value for key, value in PLUGIN["rules"][0].items() if key != "condition"}],
        },
        {**PLUGIN, "rules": []},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMA)


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("ok: gfx1010 computes", 0, 0),
        ("problem: hang", 1, 1),
        ("unknown: no time", 2, 2),
        ("", 1, 2),
        ("", 127, 2),
    ],
)
def test_only_a_verdict_sets_the_condition(tmp_path: Path, line: str, code: int, told: int) -> None:
    for name in ("nsenter", "setpriv"):
        program = tmp_path / name
        # Each starts what comes after its own arguments.
        program.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n', "utf-8")
        program.chmod(0o755)
    stand_in = tmp_path / "rocmprobe"
    stand_in.write_text(f"#!/bin/sh\necho '{line}'; echo 'Traceback' >&2; exit {code}\n", "utf-8")
    stand_in.chmod(0o755)
    (rule,) = PLUGIN["rules"]
    arguments = [each.replace("/opt/rocmprobe/bin/rocmprobe", str(stand_in)) for each in rule["args"]]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    ended = subprocess.run([rule["path"], *arguments], env=env, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (told, f"{line}\n")


def test_the_times_of_the_plugin_agree() -> None:
    config, (rule,) = PLUGIN["pluginConfig"], PLUGIN["rules"]
    budget = float(re.findall(r"--budget (\d+)", rule["args"][1])[0])
    # A rule with more than the global timeout ends node-problem-detector when it starts; one with less than
    # the check takes would always be "unknown".
    assert (
        budget + 5
        <= seconds(rule["timeout"])
        <= seconds(config["timeout"])
        < seconds(config["invoke_interval"])
    )
    assert config["max_output_length"] >= 80
    assert {rule["condition"]} == {each["type"] for each in PLUGIN["conditions"]}
    assert rule["type"] == "permanent"


def test_rocmprobe_takes_what_the_plugin_and_the_manifests_call() -> None:
    scripts = [PLUGIN["rules"][0]["args"][1]]
    scripts += [pod_of(name)["containers"][0]["args"][0] for name in ("job.yaml", "daemonset.yaml")]
    calls = [re.findall(r"rocmprobe (check|run)( [^&)\n]*)", text) for text in scripts]
    called = [[name, *arguments.split()] for found in calls for name, arguments in found]
    assert [name for name, *_ in called] == ["check", "run", "check"]
    for name, *arguments in called:
        command(name).make_context(name, [each.strip('"') for each in arguments])


@pytest.mark.thorough
@pytest.mark.skipif(not shutil.which("kubernetes-validate"), reason="kubernetes-validate is not installed")
@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_the_manifests_follow_the_schemas_of_kubernetes(version: str, tmp_path: Path) -> None:
    command = ["kubernetes-validate", "--strict", "-k", version]
    ended = subprocess.run([*command, *MANIFESTS], capture_output=True, text=True, check=False)
    kinds = [each["kind"].lower() for path in MANIFESTS for each in documents(path.name).values()]
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # It warns of what it does not know and goes on.
    told = re.findall(r"passed for resource (\w+)/", ended.stdout + ended.stderr)
    assert sorted(told) == sorted(kinds)
    wrong = tmp_path / "wrong.yaml"
    text = (RECIPES / "job.yaml").read_text("utf-8").replace("restartPolicy: Never", "restartPolcy: Never")
    wrong.write_text(text, "utf-8")
    assert subprocess.run([*command, wrong], capture_output=True, check=False).returncode == 1
