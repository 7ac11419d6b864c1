"""GPUs that rocminfo lists where the kernel lists none. Small scripts stand in for rocminfo."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.detect import detect
from rocmprobe.detect.gpus import rocminfo
from rocmprobe.detect.machine import detect_devices
from rocmprobe.detect.stack import loader
from rocmprobe.detect.tree import Tree
from rocmprobe.knowledge.visible_devices import visible
from rocmprobe.process import children

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
recorded = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not on this machine")

OWN = Tree(Path("/"))
CPU = """Agent 1
*******
  Name:                    AMD Ryzen 5 3600 6-Core Processor
  Marketing Name:          AMD Ryzen 5 3600 6-Core Processor
  Vendor Name:             CPU
  Node:                    0
  Device Type:             CPU
  Compute Unit:            12
  Pool Info:
    Pool 1
      Segment:                 GLOBAL; FLAGS: FINE GRAINED
      Size:                    16316412(0xf8f7fc) KB
  ISA Info:
"""
GPU = """*******
Agent 2
*******
  Name:                    gfx1030
  Uuid:                    GPU-0123456789abcdef
  Marketing Name:          AMD Radeon RX 5600 XT
  Vendor Name:             AMD
  Node:                    1
  Device Type:             GPU
  Cache Info:
    L1:                      16(0x10) KB
  Chip ID:                 29471(0x731f)
  BDFID:                   2816
  Internal Node ID:        1
  Compute Unit:            36
  SIMDs per CU:            2
  Memory Properties:
  Wavefront Size:          32(0x20)
  Pool Info:
    Pool 1
      Segment:                 GLOBAL; FLAGS: COARSE GRAINED
      Size:                    6275072(0x5fc000) KB
    Pool 2
      Segment:                 GROUP
      Size:                    64(0x40) KB
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--gfx1030
"""
HEADER = """ROCk module version 6.12.12 is loaded
HSA System Attributes
Runtime Version:         1.15
HSA Agents
*******
"""
WHOLE = HEADER + CPU + GPU + "*** Done ***\n"
AGENT = rocminfo.Agent("gfx1030", "AMD Radeon RX 5600 XT", 0x731F, 36, 32, 6275072 * 1024, False)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Puts a script on the PATH of its own; gives the environment under which it is found."""
    monkeypatch.setattr(loader, "OPT", str(tmp_path / "opt"))
    monkeypatch.setattr(rocminfo, "SECONDS", 2.0)

    def install(body: str, first: str = "#!/bin/sh") -> dict[str, str]:
        script = tmp_path / "bin" / "rocminfo"
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"{first}\n{body}\n")
        script.chmod(0o755)
        return {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}

    return install


def printing(text: str) -> str:
    return f"cat <<'END'\n{text}\nEND"


def message(environ: dict[str, str]) -> str:
    """The fact ``rocminfo.message`` if no GPU is listed."""
    agents, facts = rocminfo.read_agents(OWN, environ)
    assert (agents, facts["rocminfo.gpus"].value) == ((), [])
    return facts["rocminfo.message"].value


def test_the_gpus_of_a_machine_without_kfd(installed):
    environ = {**installed(printing(WHOLE)), "HIP_VISIBLE_DEVICES": "0"}
    for found in (detect(environ=environ), detect_devices(environ)):
        (gpu,) = visible(found)
        assert (gpu.native_isa.value, gpu.effective_isa.value) == ("gfx1030", "gfx1030")
        assert (gpu.name.value, gpu.pci_id.value, gpu.vendor.value) == (AGENT.name, "0x731f", "amd")
        assert (gpu.cus.value, gpu.wave_size.value, gpu.vram_bytes.value) == (36, 32, AGENT.memory_bytes)
        assert (gpu.order.value, gpu.index.value, gpu.apu.value) == (0, 0, False)
        assert gpu.name.source.endswith("/bin/rocminfo")
        assert (found.value("amd.cards"), found.value("rocminfo.gpus")) == (1, ["gfx1030"])
        assert "rocminfo.message" not in found.facts


def test_the_native_isa_under_an_override_is_that_of_the_chip(installed):
    # The script shows that the runtime gets the override, and every GPU.
    body = f'test "$HSA_OVERRIDE_GFX_VERSION" && test -z "$ROCR_VISIBLE_DEVICES" && {printing(WHOLE)}'
    environ = {**installed(body), "HSA_OVERRIDE_GFX_VERSION": "10.3.0", "ROCR_VISIBLE_DEVICES": "0"}
    (gpu,) = detect(environ=environ).gpus
    assert (gpu.native_isa.value, gpu.effective_isa.value) == ("gfx1010", "gfx1030")
    assert gpu.index.value == 0
    hidden = detect(environ={**environ, "ROCR_VISIBLE_DEVICES": ""})
    assert visible(hidden) == []


def test_it_is_not_run_where_the_kernel_lists_a_gpu_or_the_tree_is_recorded(build, monkeypatch):
    monkeypatch.setattr(children, "run", lambda *_: pytest.fail("a program was run"))
    build.file("opt/rocm/bin/rocminfo", "#!/bin/sh\n").chmod(0o755)
    recorded_tree = build.detect(PATH=os.environ["PATH"])
    assert recorded_tree.facts["rocminfo.gpus"].source == "rocminfo: not run: --root"
    build.rx_5600_xt()
    assert "rocminfo.gpus" not in build.detect(PATH=os.environ["PATH"]).facts


def test_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "OPT", str(tmp_path))
    agents, facts = rocminfo.read_agents(OWN, {"PATH": str(tmp_path)})
    assert (agents, list(facts)) == ((), ["rocminfo.gpus"])
    assert facts["rocminfo.gpus"].value is None
    assert "not on PATH" in facts["rocminfo.gpus"].source


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("echo 'ROCk module is NOT loaded, possibly no GPU devices'; exit 1",
         "ROCk module is NOT loaded, possibly no GPU devices"),
        # Names of users are dropped.
        ("echo 'ROCk module is loaded'; echo 'navin is not member of \"render\" group' >&2; exit 1",
         'ROCk module is loaded; <user> is not member of "render" group'),
        ("kill -SEGV $$", "SIGSEGV"),
        ("exit 3", "exit status 3"),
        # The program gets no input.
        ("cat", "no output"),
        (printing(HEADER + CPU), "ROCk module version 6.12.12 is loaded; HSA System Attributes; "
         "Runtime Version:         1.15"),
    ],
)  # fmt: skip
def test_what_it_says_where_it_lists_no_gpu(installed, body, text):
    assert message(installed(body)) == text


@pytest.mark.thorough
def test_one_that_hangs_is_ended_with_its_children(installed, tmp_path):
    child = tmp_path / "child"
    assert message(installed(f"sleep 600 & echo $! > {child}; wait")) == "no answer in 2 s"
    assert gone(int(child.read_text()))


def test_a_child_that_keeps_the_streams_open_is_not_waited_for(installed, tmp_path):
    child = tmp_path / "child"
    agents, _ = rocminfo.read_agents(OWN, installed(f"sleep 600 & echo $! > {child}\n{printing(WHOLE)}"))
    assert agents == (AGENT,)
    assert gone(int(child.read_text()))


def gone(pid: int) -> bool:
    """Return True if a process ends within seconds, for example because it was killed."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_programs_that_do_not_answer(installed, monkeypatch):
    monkeypatch.setattr(rocminfo, "SECONDS", 0.2)
    assert len(message(installed("yes 'no end of this'"))) < 100
    assert len(children.run(["yes"], os.environ, 0.2).out) <= 1 << 18
    assert message(installed("", first="#!/nonexistent/interpreter")) == "no such file or directory"
    assert isinstance(message(installed("head -c 20000 /dev/urandom")), str)
    monkeypatch.setattr(children, "KILLED_AFTER", 0.05)
    monkeypatch.setattr(children.os, "killpg", lambda *_: None)
    assert message(installed("sleep 3")) == "no answer in 0.2 s, and it cannot be killed"


def test_newest_release_where_none_is_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "OPT", str(tmp_path / "opt"))
    for release in ("rocm-6.9.0", "rocm-6.10.0", "rocm-6.2.0"):
        script = tmp_path / "opt" / release / "bin" / "rocminfo"
        script.parent.mkdir(parents=True)
        script.write_text(f"#!/bin/sh\necho {release}\n")
        script.chmod(0o755)
    assert message({"PATH": str(tmp_path)}) == "rocm-6.10.0"


def test_agents():
    assert rocminfo.parse(WHOLE) == (AGENT,)
    assert rocminfo.parse(WHOLE.replace("\n", "\r\n").replace("Agent 2", "\x1b[1mAgent 2\x1b[0m")) == (AGENT,)
    # A text that was cut.
    (cut,) = rocminfo.parse(WHOLE[: WHOLE.index("  Pool Info:", len(HEADER + CPU))])
    assert (cut.gfx, cut.memory_bytes) == ("gfx1030", None)
    assert rocminfo.parse(HEADER + CPU) == ()
    # A driver that is built into the kernel is no module.
    assert rocminfo.parse("ROCk module is NOT loaded, possibly no GPU devices\n" + WHOLE) == (AGENT,)


@given(st.one_of(st.text(), st.lists(st.sampled_from(WHOLE.splitlines())).map("\n".join)))
def test_arbitrary_text_never_raises(text):
    assert isinstance(rocminfo.parse(text), tuple)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "piece", ["\n", " ", "Agent ", "Agent 1\n", "Name: ", "Segment: GLOBAL\n", "HSA Agents "]
)
def test_long_monotonous_text(piece):
    rocminfo.parse(piece * (400_000 // len(piece)))


def corpus():
    manifest = FIXTURES / "rocminfo-corpus" / "MANIFEST.tsv"
    return [line.split("\t") for line in manifest.read_text().splitlines()[1:]] if manifest.is_file() else []


#: Texts that people edited or cut.
EDITED = (
    "cpu-only__TheRock-3312-1__truncated.txt", "AMD Ryzen 7 5800X3D 8-Core Processor__ROCm-3380-1.txt",
    "gfx942__ROCm-6023-1__truncated.txt",
)  # fmt: skip


@recorded
def test_corpus():
    rows = [row for row in corpus() if row[0] not in EDITED]
    assert len(rows) > 200
    for name, _, _, _, agents, *_ in rows:
        wanted = [[field.strip() for field in agent.split("|")] for agent in agents.split(";") if agent]
        found = [
            [
                agent.gfx or "",
                agent.name or "",
                f"0x{agent.chip_id:04x}" if agent.chip_id else "",
                str(agent.cus or ""),
                str((agent.memory_bytes or 0) // 1024 or ""),
                "APU" if agent.apu else "",
            ]
            for agent in rocminfo.parse((FIXTURES / "rocminfo-corpus" / name).read_text())
        ]
        # The sixth field has the names of ISAs.
        assert found == [[*fields[:5], fields[6]] for fields in wanted], name


@recorded
def test_recorded_failures_list_no_gpu():
    texts = [*(FIXTURES / "rocminfo-fail-forms").glob("*.txt"),
             *(FIXTURES / "SEMI-real-rocminfo-kfd-failures").glob("*/*.stdout")]  # fmt: skip
    assert len(texts) > 20
    for path in texts:
        assert rocminfo.parse(path.read_text()) == (), path
