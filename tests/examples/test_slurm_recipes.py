"""The recipes for Slurm: what they call, by stand-ins of Slurm's commands, and an array on a real one."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import named_machine

from rocmprobe.cli.base import command

RECIPES = Path(__file__).parents[2] / "examples" / "slurm"
SCRIPTS = sorted(RECIPES.glob("*.sh"))
PROBLEM = "problem: hang in convolution fwd float32, default on gfx1010 (cuda:0): no answer in 20 s"
DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch")


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """The file in which each stand-in writes how it was called; tmp_path/bin is their folder."""
    (tmp_path / "bin").mkdir()
    for name in ("sinfo", "sbatch", "scontrol", "logger", "rocmprobe"):
        stand_in(tmp_path, name, "")
    return tmp_path / "calls.txt"


def stand_in(folder: Path, name: str, answer: str) -> None:
    script = folder / "bin" / name
    script.write_text(f'#!/bin/bash\nprintf "%s\\n" "{name} $*" >>"{folder}/calls.txt"\n{answer}\n', "utf-8")
    script.chmod(0o755)


def shell(folder: Path, script: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(script), *arguments], cwd=folder, text=True, capture_output=True, timeout=60, check=False,
        env={"PATH": f"{folder}/bin:/usr/bin:/bin", **variables},
    )  # fmt: skip


def installed(folder: Path) -> Path:
    """The health check beside settings that name the stand-ins, as on a node."""
    for name in ("health-check.sh", "epilog.sh"):
        shutil.copy(RECIPES / name, folder / name)
    (folder / "rocmprobe.env").write_text(
        f"ROCMPROBE={folder}/bin/rocmprobe\nPATH={folder}/bin:/usr/bin:/bin\n"
        'RESULTS="/state/$SLURMD_NODENAME/results.json"\nSLURM_CONF=/somewhere/slurm.conf\n',
        "utf-8",
    )
    return folder / "health-check.sh"


@pytest.mark.parametrize("script", [*SCRIPTS, RECIPES / "rocmprobe.env"], ids=lambda path: path.name)
def test_bash_takes_each_script(script: Path) -> None:
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    assert script.suffix == ".env" or os.access(script, os.X_OK)


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    names = [script.name for script in SCRIPTS]
    ended = subprocess.run(
        ["shellcheck", "-x", *names], cwd=RECIPES, text=True, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "")


def test_rocmprobe_takes_what_the_scripts_call() -> None:
    text = "".join(script.read_text("utf-8") for script in SCRIPTS).replace("\\\n", " ")
    called = re.findall(r'(?:^exec |\$\()"\$\{?ROCMPROBE[^ ]*" (\w+) (.*)$', text, re.MULTILINE)
    assert sorted(name for name, _ in called) == ["check", "run"]
    for name, arguments in called:
        words = arguments.replace("$BUDGET", "50").replace('"', "").rstrip(")").split()
        command(name).make_context(name, [each for each in words if not each.startswith("$@")])


def test_each_node_gets_one_task(tmp_path: Path, calls: Path) -> None:
    stand_in(tmp_path, "sinfo", "printf '%s\\n' gpu2 gpu1 gpu2")
    stand_in(tmp_path, "sbatch", 'echo "7;farm"')
    ended = shell(tmp_path, RECIPES / "submit.sh", "--level", "quick", SBATCH_PARTITION="gpu")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert calls.read_text("utf-8").splitlines() == [
        "sinfo --Node --noheader --format=%N --states=idle,mixed,allocated,completing --partition=gpu",
        f"sbatch --parsable --hold --array=1-2 {RECIPES}/array.sh --level quick",
        "scontrol update JobId=7_1 ReqNodeList=gpu1",
        "scontrol update JobId=7_2 ReqNodeList=gpu2",
        "scontrol release 7",
    ]
    assert (tmp_path / "results").is_dir()
    assert ended.stdout == "array 7 on 2 nodes; then compare them: rocmprobe compare results/*/*\n"


def test_without_a_node_nothing_is_submitted(tmp_path: Path, calls: Path) -> None:
    ended = shell(tmp_path, RECIPES / "submit.sh")
    assert (ended.returncode, ended.stderr) == (2, "submit.sh: no node can run jobs; see sinfo\n")
    assert "sbatch" not in calls.read_text("utf-8")


@pytest.mark.parametrize("code", [0, 1, 5])
def test_a_task_runs_in_a_folder_of_its_node_and_ends_with_its_code(
    tmp_path: Path, calls: Path, code: int
) -> None:
    stand_in(tmp_path, "rocmprobe", f"exit {code}")
    job = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2", "SLURMD_NODENAME": "gpu2"}
    ended = shell(tmp_path, RECIPES / "array.sh", "--level", "long", SLURM_SUBMIT_DIR="/home/a user", **job)
    assert ended.returncode == code
    assert calls.read_text("utf-8") == "rocmprobe run --level long --out /home/a user/results/gpu2/7_2\n"


def test_a_problem_drains_the_node_with_the_verdict_as_reason(tmp_path: Path, calls: Path) -> None:
    stand_in(tmp_path, "rocmprobe", f"echo '{PROBLEM}'; exit 1")
    stand_in(tmp_path, "sinfo", "echo idle")
    stand_in(tmp_path, "scontrol", f'echo "$SLURM_CONF" >>"{calls}"')
    script = installed(tmp_path)
    # What slurmd gives: the name of the node, and nothing else.
    ended = subprocess.run([str(script)], env={"SLURMD_NODENAME": "gpu2"}, timeout=60, check=False)
    assert ended.returncode == 0
    assert calls.read_text("utf-8").splitlines() == [
        "rocmprobe check /state/gpu2/results.json --budget 50",
        f"logger --tag rocmprobe -- gpu2: {PROBLEM}",
        "sinfo --noheader --nodes=gpu2 --format=%T",
        f"scontrol update NodeName=gpu2 State=DRAIN Reason=rocmprobe: {PROBLEM}",
        "/somewhere/slurm.conf",
    ]


@pytest.mark.parametrize(("verdict", "code"), [
    ("ok: default on gfx1010 (cuda:0): 10 checks correct in 6.6 s", 0),
    ("busy: pid 4711 (python) has the GPU open; nothing was tested", 6),
    ("unknown: out of time", 6),
    ("nothing: no such device", 3),
    ("", 1),  # a Python that does not start
])  # fmt: skip
def test_what_is_no_problem_is_logged_and_changes_nothing(
    tmp_path: Path, calls: Path, verdict: str, code: int
) -> None:
    stand_in(tmp_path, "rocmprobe", f"echo '{verdict}'; exit {code}")
    assert shell(tmp_path, installed(tmp_path), SLURMD_NODENAME="gpu2").returncode == 0
    made = calls.read_text("utf-8").splitlines()
    assert made[1:] == [f"logger --tag rocmprobe -- gpu2: {verdict or 'no verdict'}"]


@pytest.mark.parametrize("state", ["drained", "draining", "drained*"])
def test_the_reason_of_a_drained_node_stays(tmp_path: Path, calls: Path, state: str) -> None:
    stand_in(tmp_path, "rocmprobe", f"echo '{PROBLEM}'; exit 1")
    stand_in(tmp_path, "sinfo", f"echo '{state}'")
    shell(tmp_path, installed(tmp_path), SLURMD_NODENAME="gpu2")
    assert "scontrol" not in calls.read_text("utf-8")


def test_the_epilog_checks_briefly_and_never_fails(tmp_path: Path, calls: Path) -> None:
    stand_in(tmp_path, "rocmprobe", f"echo '{PROBLEM}'; exit 1")
    stand_in(tmp_path, "scontrol", "exit 1")
    installed(tmp_path)
    assert shell(tmp_path, tmp_path / "epilog.sh", SLURMD_NODENAME="gpu2").returncode == 0
    assert "--budget 20\n" in calls.read_text("utf-8")
    assert "State=DRAIN" in calls.read_text("utf-8")


CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={base}/munge/socket
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool-%n
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd.%n.pid
SlurmctldLogFile={base}/slurmctld.log
SlurmdLogFile={base}/slurmd.%n.log
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SchedulerParameters=bf_interval=5,sched_interval=5
SlurmdParameters=config_overrides
NodeName=gpu[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[2]}] CPUs=1 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES MaxTime=60
"""


def free_ports() -> list[int]:
    """Three ports in a row that nobody listens on."""
    for first in range(17100, 19000, 7):
        try:
            for port in range(first, first + 3):
                with socket.socket() as tried:
                    tried.bind(("127.0.0.1", port))
        except OSError:
            continue
        return [first, first + 1, first + 2]
    pytest.skip("no free ports")


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Slurm of two nodes on this machine; the path of its slurm.conf."""
    if os.geteuid() or not all(shutil.which(name) for name in DAEMONS):
        pytest.skip("Slurm and MUNGE are not installed, or this is not root")
    base = tmp_path_factory.mktemp("slurm")
    base.parent.chmod(0o755)
    base.chmod(0o755)
    for name in ("munge", "state", "spool-gpu1", "spool-gpu2"):
        (base / name).mkdir(mode=0o755)
    (base / "munge" / "key").write_bytes(os.urandom(128))
    (base / "munge" / "key").chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    configuration = base / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(host=host, base=base, ports=free_ports()), "utf-8")
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    munge = [f"--{name}-file={base}/munge/{name}" for name in ("key", "pid", "log", "seed")]
    started = ["munged.pid", "slurmctld.pid", "slurmd.gpu1.pid", "slurmd.gpu2.pid"]
    munge[1] = f"--pid-file={base}/munged.pid"
    try:
        for command in (
            ["munged", "--force", f"--socket={base}/munge/socket", *munge],
            ["slurmctld", "-c"], ["slurmd", "-N", "gpu1"], ["slurmd", "-N", "gpu2"],
        ):  # fmt: skip
            subprocess.run(command, cwd=base, env=environment, check=True, timeout=60)
        wait_until(lambda: told(environment, "sinfo", "-hNo", "%T").split() == ["idle", "idle"])
        yield configuration
    finally:
        for name in reversed(started):
            if (base / name).exists():
                os.kill(int((base / name).read_text()), 15)


def told(environment: dict[str, str], *command: str) -> str:
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=False).stdout


def wait_until(is_so: object, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.5)


@pytest.mark.thorough
def test_a_real_slurm_runs_the_array_and_drains_what_hangs(slurm: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "SLURM_CONF": str(slurm)}
    program = Path(sys.executable).with_name("rocmprobe")
    hanging = named_machine("kernel-never-ends")
    (tmp_path / "bin").mkdir()
    # Each node is a simulated machine with a /tmp of its own.
    stand_in(tmp_path, "rocmprobe", f"""
        export TMPDIR={tmp_path}/tmp-$SLURMD_NODENAME
        mkdir -p "$TMPDIR"
        if [ "$SLURMD_NODENAME" = gpu1 ]; then machine={hanging}; else machine=healthy-gfx1100; fi
        exec {program} "$@" --simulate "$machine"
        """)  # fmt: skip
    submit = {**environment, "ROCMPROBE": str(tmp_path / "bin" / "rocmprobe")}
    few = ["--settings", "default,vendor-off", "--only", "gemm", "--only", "convolution"]
    subprocess.run([RECIPES / "submit.sh", *few], cwd=tmp_path, env=submit, check=True, timeout=60)
    wait_until(lambda: not told(environment, "squeue", "-h").strip())
    found = {path.parts[-3] for path in (tmp_path / "results").glob("*/*/results.json")}
    assert found == {"gpu1", "gpu2"}

    script = installed(tmp_path)
    settings = f"ROCMPROBE={tmp_path}/bin/rocmprobe\nPATH={os.environ['PATH']}\nSLURM_CONF={slurm}\n"
    (tmp_path / "rocmprobe.env").write_text(settings, "utf-8")
    for node in ("gpu1", "gpu2"):
        subprocess.run([str(script)], env={"SLURMD_NODENAME": node}, timeout=60, check=True)
    drained, healthy = told(environment, "sinfo", "-hNo", "%N %T %E").splitlines()
    assert drained.startswith("gpu1 drained rocmprobe: problem: hang in convolution")
    assert healthy.startswith("gpu2 idle")
