"""Installed tools: run, bounded, and what their end means. Small scripts stand in for them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from rows import every_row

from rocmprobe.detect import detect
from rocmprobe.detect.programs import tools
from rocmprobe.detect.stack import loader
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact
from rocmprobe.process import children

OWN = Tree(Path("/"))
LOADED = """ROCk module is loaded
HSA Agents
Agent 1
  Name:                    gfx1030
  Marketing Name:          AMD Radeon RX 5600 XT
  Device Type:             GPU
  Chip ID:                 29471(0x731f)
  Compute Unit:            36
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--gfx1030
*** Done ***
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Puts a script on the PATH of its own, so that no other tool is found; gives the facts after a run."""
    monkeypatch.setattr(loader, "OPT", str(tmp_path / "opt"))
    monkeypatch.setattr(tools, "SECONDS", 2.0)

    def install(name: str, body: str) -> dict:
        script = tmp_path / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        return run({"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})

    def run(environ):
        facts = tools.read_facts(OWN, tools.start(OWN, environ))
        return {name: fact for name, fact in facts.items() if fact.value is not None}

    return install


def printing(text: str) -> str:
    return f"cat <<'END'\n{text}\nEND"


def test_what_rocminfo_and_rocm_smi_tell(installed):
    # Rocminfo that works.
    facts = installed("rocminfo", printing(LOADED))
    assert (facts["rocminfo.exit"].value, facts["rocminfo.state"].value) == ("0", "ok")
    (agent,) = facts["rocminfo.agents"].value
    assert (agent["gfx"], agent["chip_id"], agent["cus"]) == ("gfx1030", "0x731f", 36)
    assert agent["isas"] == ["gfx1030"]
    assert facts["rocminfo.agents"].source.endswith("/bin/rocminfo")
    assert "rocminfo.meaning" not in facts

    # What rocminfo does not tell is said.
    facts = installed("rocminfo", printing(LOADED[: LOADED.index("Chip ID")]))
    (line,) = facts["rocminfo.not_learned"].value
    assert line.startswith("rocminfo's entry for gfx1030 lacks PCI id")

    # ROCm smi that works though it exits with 2.
    facts = installed("rocm-smi", printing('{"card0": {"Device ID": "0x731f"}}') + "\nexit 2")
    assert (facts["rocm_smi.exit"].value, facts["rocm_smi.state"].value) == ("2", "ok")
    assert facts["rocm_smi.gpus"].value[0]["pci_id"] == "0x731f"


def test_they_get_the_environment(installed, tmp_path, monkeypatch):
    installed("amd-smi", "true")
    environ = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HSA_OVERRIDE_GFX_VERSION": "10.3.0"}
    (tmp_path / "bin" / "amd-smi").write_text("#!/bin/sh\necho $HSA_OVERRIDE_GFX_VERSION $(cat)\n")
    facts = tools.read_facts(OWN, tools.start(OWN, environ))
    assert facts["amd_smi.message"].value == "10.3.0"
    assert facts["amd_smi.state"].value == "not-understood"


@every_row(
    ("name", "body", "status", "state"),
    [
        (
            "rocminfo",
            "echo 'ROCk module is NOT loaded, possibly no GPU devices'; exit 1",
            "1",
            "driver-not-loaded",
        ),
        (
            "rocm-smi",
            "echo 'ERROR:root:Driver not initialized (amdgpu not found in modules)' >&2",
            "0",
            "driver-not-loaded",
        ),
        (
            "amd-smi",
            "echo 'ERROR:root:Drivers not loaded (amdgpu drivers not found in modules)' >&2; exit 255",
            "255",
            "driver-not-loaded",
        ),
        (
            "rocminfo",
            "echo 'Unable to open /dev/kfd read-write: Permission denied'; exit 1",
            "1",
            "permission-denied",
        ),
        (
            "rocminfo",
            "echo 'rocminfo: error while loading shared libraries: libhsa.so.1' >&2; exit 127",
            "127",
            "library-missing",
        ),
        ("rocm-smi", "echo \"ModuleNotFoundError: No module named 'x'\" >&2; exit 1", "1", "library-missing"),
        ("rocminfo", "kill -SEGV $$", "SIGSEGV", "crashed"),
        ("rocminfo", "exit 3", "3", "not-understood"),
    ],
)
def test_failures(installed, name, body, status, state):
    facts = installed(name, body)
    prefix = name.replace("-", "_")
    assert (facts[f"{prefix}.exit"].value, facts[f"{prefix}.state"].value) == (status, state)
    assert facts[f"{prefix}.meaning"].value


@pytest.mark.thorough
def test_a_tool_that_hangs_is_ended_with_its_children(installed, tmp_path):
    child = tmp_path / "child"
    facts = installed("rocminfo", f"echo started; sleep 600 & echo $! > {child}; wait")
    assert (facts["rocminfo.exit"].value, facts["rocminfo.state"].value) == ("no answer in 2 s", "timeout")
    assert facts["rocminfo.message"].value == "started"
    assert gone(int(child.read_text()))


def test_a_child_that_keeps_the_streams_open_is_not_waited_for(installed, tmp_path):
    child = tmp_path / "child"
    facts = installed("rocminfo", f"sleep 600 & echo $! > {child}\n{printing(LOADED)}")
    assert (facts["rocminfo.exit"].value, facts["rocminfo.state"].value) == ("0", "ok")
    assert gone(int(child.read_text()))


def gone(pid: int) -> bool:
    """Whether a process ends within seconds, as one does that was killed."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_flood_is_cut(installed, monkeypatch):
    monkeypatch.setattr(tools, "SECONDS", 0.5)
    facts = installed("rocm-smi", "yes 'no end of this'")
    assert facts["rocm_smi.state"].value == "timeout"
    assert len(facts["rocm_smi.message"].value) < 100


def test_a_tool_that_cannot_be_killed_is_not_waited_for(installed, monkeypatch):
    monkeypatch.setattr(children, "KILLED_AFTER", 0.05)
    monkeypatch.setattr(children.os, "killpg", lambda *_: None)
    monkeypatch.setattr(tools, "SECONDS", 0.2)
    facts = installed("rocminfo", "sleep 3")
    assert facts["rocminfo.state"].value == "unkillable"
    assert "cannot be killed" in facts["rocminfo.exit"].value


def test_a_tool_that_cannot_be_started(installed, tmp_path):
    installed("rocminfo", "true")
    (tmp_path / "bin" / "rocminfo").write_text("#!/nonexistent/interpreter\n")
    runs = tools.start(OWN, {"PATH": str(tmp_path / "bin")})
    assert tools.read_facts(OWN, runs)["rocminfo.state"].value == "not-started"


def test_arbitrary_bytes(installed):
    facts = installed("rocminfo", "head -c 20000 /dev/urandom")
    assert facts["rocminfo.exit"].value == "0"


def test_newest_release_where_none_is_on_the_path(installed, tmp_path):
    for release in ("rocm-6.9.0", "rocm-6.10.0", "rocm-6.2.0"):
        script = tmp_path / "opt" / release / "bin" / "rocminfo"
        script.parent.mkdir(parents=True)
        script.write_text(f"#!/bin/sh\necho {release}\n")
        script.chmod(0o755)
    facts = tools.read_facts(OWN, tools.start(OWN, {"PATH": str(tmp_path)}))
    assert facts["rocminfo.message"].value == "rocm-6.10.0"


def test_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "OPT", str(tmp_path))
    facts = tools.read_facts(OWN, tools.start(OWN, {"PATH": str(tmp_path)}))
    assert set(facts) == {"rocminfo.exit", "rocm_smi.exit", "amd_smi.exit"}
    assert all(fact.value is None and "not on PATH" in fact.source for fact in facts.values())


def test_nothing_is_run_for_a_recorded_tree(build, monkeypatch):
    monkeypatch.setattr(children, "run", lambda *_: pytest.fail("a tool was run"))
    path = build.file("opt/rocm/bin/rocminfo", "#!/bin/sh\n")
    path.chmod(0o755)
    found = build.detect(PATH=os.environ["PATH"])
    assert found.facts["rocminfo.exit"].source == "rocminfo: not run: --root"


def test_detect_runs_them(tmp_path):
    script = tmp_path / "rocminfo"
    script.write_text(f"#!{sys.executable}\nprint({LOADED!r})\n")
    script.chmod(0o755)
    found = detect(environ={"PATH": str(tmp_path)})
    assert found.value("rocminfo.agents")[0]["name"] == "AMD Radeon RX 5600 XT"


def test_a_gpu_that_sleeps_is_not_woken() -> None:
    facts = tools.read_facts(OWN, [], ["0000:03:00.0"])
    assert facts["rocminfo.exit"] == Fact(
        None, "rocminfo: not run: it would wake 0000:03:00.0, which is suspended"
    )
