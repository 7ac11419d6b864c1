"""`rocmprobe monitor` as a process: what it prints, its file, and how it ends."""

from __future__ import annotations

import csv
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from runs import cli, environment, wait_until

from rocmprobe.cli import main
from rocmprobe.cli.monitor import monitor
from rocmprobe.detect import sensors as sensing
from rocmprobe.engine.lease import DeviceLease
from rocmprobe.model.results import BadInput
from rocmprobe.text.plain_text import is_plain

DEVICE = "sys/bus/pci/devices/0000:0b:00.0"
HWMON = f"{DEVICE}/hwmon/hwmon3"
FILES = {
    f"{DEVICE}/vendor": "0x1002", f"{DEVICE}/class": "0x030000", f"{DEVICE}/device": "0x731f",
    f"{DEVICE}/revision": "0xca", f"{DEVICE}/gpu_busy_percent": "99",
    f"{HWMON}/temp2_label": "junction", f"{HWMON}/temp2_input": "104000", f"{HWMON}/temp2_crit": "105000",
    f"{HWMON}/fan1_input": "1056", f"{HWMON}/pwm1": "84",
}  # fmt: skip
ALARMS = "junction 104 °C, limit 105 °C; fan at 33 % only"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return tmp_path / "root"


def start(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rocmprobe", "monitor", *map(str, arguments)]
    return subprocess.Popen(command, env=environment(), **options)  # type: ignore[call-overload, no-any-return]


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


@pytest.mark.thorough
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_file_is_appended_to_until_a_signal_ends_it(
    root: Path, tmp_path: Path, end: signal.Signals
) -> None:
    file = tmp_path / "out.csv"
    # Long enough for a first answer, however busy the machine is.
    monitor(root, file, interval=1.0, times=2)
    process = start("--root", root, "--csv", file, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert wait_until(lambda: len(rows(file)) >= 3, 20)
    process.send_signal(end)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, b"", b"")
    for row in rows(file):
        assert (row["device"], row["temperature_junction_c"], row["fan_percent"]) == (
            "0000:0b:00.0", "104", "32.9",
        )  # fmt: skip
        assert row["power_w"] == ""
        assert row["alarms"] == ALARMS
        assert row["time"].endswith("Z")


def test_a_picture_on_a_terminal(root: Path) -> None:
    primary, secondary = pty.openpty()
    process = start("--root", root, stdout=secondary, stderr=secondary)
    os.close(secondary)
    shown = b""
    while b"Ctrl-C" not in shown:
        shown += os.read(primary, 65536)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    os.close(primary)
    for words in ("AMD Radeon RX 5600 XT", "junction", "104 °C", "105 °C", "ALARM: fan at 33 % only"):
        assert words in shown.decode()


def lines(root: Path, times: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monitor(root, None, interval=0.01, times=times)
    return capsys.readouterr().out.splitlines()


def test_a_plain_line_a_time_elsewhere(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = lines(root, 3, capsys)
    assert len(told) == 3
    assert told[0].endswith(
        f"0000:0b:00.0  junction 104 °C, fan 33 %, fan turns 1056 rpm, busy 99 %  ALARM: {ALARMS}"
    )


def test_nothing_is_read_after_its_end(root: Path) -> None:
    before = threading.active_count()
    monitor(root, None, interval=0.01, times=2)
    assert wait_until(lambda: threading.active_count() <= before, 20)


def test_a_run_that_has_the_device_is_named(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lease = DeviceLease("GPU 0000:0b:00.0", Path("/runs/a\x1b[31mb"))
    lease.take()
    assert (
        f"  in use: run /runs/ab (pid {os.getpid()}) on GPU 0000:0b:00.0 since " in lines(root, 1, capsys)[0]
    )
    lease.release()
    assert "in use" not in lines(root, 1, capsys)[0]


def test_a_gpu_that_sleeps_is_said_to(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / DEVICE / "power").mkdir()
    (root / DEVICE / "power" / "runtime_status").write_text("suspended\n")
    assert lines(root, 1, capsys)[0].endswith("asleep, not woken")


def test_a_gpu_that_does_not_answer_is_said_to_not(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(sensing, "read", lambda tree, device: {"power_w": float(len(os.read(reading, 1)))})
    monkeypatch.setattr("rocmprobe.cli.monitor._PATIENCE", 0.02)
    assert "ALARM: no answer for 0 s" in lines(root, 5, capsys)[-1]
    os.close(writing)


def test_what_it_refuses(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine\n")
    for file, words in (
        (other, "notes.txt: is not a file of"),
        (tmp_path / "no" / "a.csv", "cannot be written"),
    ):
        with pytest.raises(BadInput, match=words):
            monitor(root, file, times=1)
    ended = cli("monitor", "--root", tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (3, "", 1)
    assert "no AMD GPU" in ended.stderr
    assert other.read_text() == "mine\n"


HOSTILE = "G\x1b]8;;http://a.example\x07l\x1b[31m\x9b\u202e [bold]b[/bold]\n::error::told\n" + "9" * 5000


def test_a_hostile_tree_sends_nothing_to_a_terminal(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (f"{DEVICE}/product_name", f"{DEVICE}/unique_id", f"{HWMON}/name", "etc/os-release"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(HOSTILE)
    (root / HWMON / "temp2_crit").write_text("1" + "0" * 400)
    (root / "proc/sys/kernel").mkdir(parents=True)
    (root / "proc/sys/kernel/osrelease").write_text(HOSTILE)
    file = tmp_path / "out.csv"
    monitor(root, file, interval=1.0, times=1)
    monitor(root, None, interval=1.0, times=1)
    printed = capsys.readouterr()
    assert "junction 104 °C" in printed.out
    assert printed.err == ""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    done = CliRunner().invoke(main, ["detect", "--root", str(root)])
    assert done.exit_code == 0
    assert "told" in done.output
    assert done.output.startswith("::stop-commands::")
    for text in (printed.out, file.read_text(), done.output):
        assert is_plain(text)
