"""What rocminfo prints, on machines where it works and where it does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import every_row

from rocmprobe.detect.programs import rocminfo
from rocmprobe.detect.programs.tool_failures import failure

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
recorded = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not on this machine")

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
    ISA 2
      Name:                    amdgcn-amd-amdhsa--gfx10-3-generic
"""
HEADER = """ROCk module version 6.12.12 is loaded
HSA System Attributes
Runtime Version:         1.15
HSA Agents
*******
"""
WHOLE = HEADER + CPU + GPU + "*** Done ***\n"


def test_agents():
    info = rocminfo.parse(WHOLE)
    assert [agent.kind for agent in info.agents] == ["CPU", "GPU"]
    assert info.gpus == (
        rocminfo.Agent(
            kind="GPU",
            gfx="gfx1030",
            name="AMD Radeon RX 5600 XT",
            chip_id="0x731f",
            cus=36,
            simds_per_cu=2,
            wave_size=32,
            memory_bytes=6275072 * 1024,
            isas=("gfx1030", "gfx10-3-generic"),
            apu=False,
            bdf="0b:00.0",
            node=1,
        ),
    )
    assert info.runtime_version == "1.15"
    assert info.failure is None

    # Names of users are dropped.
    text = (
        "ROCk module is loaded\nUnable to open /dev/kfd read-write: Permission denied\n"
        'navin is not member of "render" group, the default DRM access group.\n'
    )
    assert "navin" not in str(rocminfo.parse(text))
    assert rocminfo.parse(text).failure.line == "Unable to open /dev/kfd read-write: Permission denied"

    # Fields on one line.
    (gpu,) = rocminfo.parse(" ".join(WHOLE.split())).gpus
    (whole,) = rocminfo.parse(WHOLE).gpus
    assert (gpu.gfx, gpu.name, gpu.chip_id, gpu.bdf) == (whole.gfx, whole.name, whole.chip_id, whole.bdf)
    assert (gpu.cus, gpu.wave_size, gpu.memory_bytes) == (whole.cus, whole.wave_size, whole.memory_bytes)
    assert gpu.isas[0] == "gfx1030"
    assert gpu.not_learned == ()


@every_row("prefix", ["> ", "2026-02-06T01:35:21.38Z ERROR    test_sanity.py:45 "])
def test_quoted_and_logged_text(prefix):
    text = "".join(prefix + line for line in WHOLE.splitlines(keepends=True))
    assert rocminfo.parse(text).agents == rocminfo.parse(WHOLE).agents


def test_agents_that_are_cut_or_none():
    # Cut text.
    info = rocminfo.parse(WHOLE[: WHOLE.index("  Pool Info:", len(HEADER + CPU))])
    assert (info.gpus[0].gfx, info.gpus[0].memory_bytes, info.gpus[0].isas) == ("gfx1030", None, ())

    # Processor alone.
    info = rocminfo.parse(HEADER + CPU + "*** Done ***\n")
    assert info.gpus == ()
    assert info.failure.state == "no-gpu-agents"

    # Driver that is built in is no failure.
    info = rocminfo.parse("ROCk module is NOT loaded, possibly no GPU devices\n" + WHOLE)
    assert info.gpus
    assert info.failure is None


LAYOUTS = {
    "no headings": lambda text: re.sub(r"^(Agent [0-9]+|\*+)\n", "", text, flags=re.MULTILINE),
    "headings in bold": lambda text: re.sub(r"^(Agent [0-9]+)$", r"**\1**", text, flags=re.MULTILINE),
    "hexadecimal": lambda text: re.sub(r"(Chip ID: +)[0-9]+\((0x[0-9a-f]+)\)", r"\1\2", text),
    "values below": lambda text: re.sub(
        r"^( +[A-Z][\w ]+:) +(?=\S)", r"\1\n      ", text, flags=re.MULTILINE
    ),
    "no name": lambda text: text.replace("  Name:                    gfx1030\n", "", 1),
    "no indent": lambda text: re.sub(r"^ +", "", text, flags=re.MULTILINE),
}


@given(st.sets(st.sampled_from(sorted(LAYOUTS))))
def test_every_layout_tells_the_same_of_a_gpu(layouts):
    text = WHOLE
    for name in sorted(layouts, reverse=True):
        text = LAYOUTS[name](text)
    assert rocminfo.parse(text).gpus == rocminfo.parse(WHOLE).gpus


@every_row(
    ("cut", "missing"),
    [
        ("  Chip ID", ("PCI id", "compute units", "memory")),
        ("  Compute Unit", ("compute units", "memory")),
        ("  Pool Info", ("memory",)),
        ("  ISA Info", ()),
    ],
)
def test_what_was_not_learned_is_said(cut, missing):
    (gpu,) = rocminfo.parse(HEADER + GPU[: GPU.index(cut)]).gpus
    assert gpu.not_learned == missing
    (unnamed,) = rocminfo.parse(HEADER + LAYOUTS["no name"](GPU[: GPU.index(cut)])).gpus
    assert unnamed.not_learned == ("ISA", *missing)


@every_row("text", ["", "\n", "rocminfo: nothing that is known", "ROCk module is loaded\n"])
def test_text_without_agents_or_complaint(text):
    info = rocminfo.parse(text)
    assert (info.agents, info.failure) == ((), None)


@given(st.one_of(st.text(), st.lists(st.sampled_from(WHOLE.splitlines())).map("\n".join)))
def test_arbitrary_text_never_raises(text):
    assert isinstance(rocminfo.parse(text).agents, tuple)


@pytest.mark.thorough
@every_row("piece", ["\n", " ", "Agent ", "Name: ", "/dev/kfd ", "GPU[0] : ", "[", "HSA Agents "])
def test_long_monotonous_text(piece):
    rocminfo.parse(piece * (400_000 // len(piece)))


def corpus():
    manifest = FIXTURES / "rocminfo-corpus" / "MANIFEST.tsv"
    return [line.split("\t") for line in manifest.read_text().splitlines()[1:]] if manifest.is_file() else []


#: Texts that people edited, so that the manifest took a field of one agent for that of another.
EDITED = ("cpu-only__TheRock-3312-1__truncated.txt", "AMD Ryzen 7 5800X3D 8-Core Processor__ROCm-3380-1.txt")


@recorded
def test_corpus():
    rows = [row for row in corpus() if row[0] not in EDITED]
    assert len(rows) > 200
    for name, _, _, runtime, agents, *_ in rows:
        info = rocminfo.parse((FIXTURES / "rocminfo-corpus" / name).read_text())
        wanted = [tuple(field.strip() for field in agent.split("|")) for agent in agents.split(";") if agent]
        found = [
            (
                agent.gfx or "",
                agent.name or "",
                agent.chip_id or "",
                str(agent.cus or ""),
                str((agent.memory_bytes or 0) // 1024 or ""),
                ",".join(f"amdgcn-amd-amdhsa--{isa}" for isa in agent.isas),
                "APU" if agent.apu else "",
            )
            for agent in info.gpus
        ]
        assert found == wanted, name
        assert info.runtime_version == (runtime or None), name


@recorded
def test_recorded_overrides_show_the_effective_isa():
    text = (FIXTURES / "rocminfo-override-rx6600-plus-mi210-rocm6.4" / "rocminfo.txt").read_text()
    assert [(gpu.gfx, gpu.chip_id) for gpu in rocminfo.parse(text).gpus] == [
        ("gfx1030", "0x73ff"),
        ("gfx1030", "0x740f"),
    ]


@recorded
@every_row(
    ("name", "state"),
    [
        ("bad-address", "kfd-refused"),
        ("cannot-allocate-memory-rx5500xt", "kfd-refused"),
        ("invalid-argument", "kfd-refused"),
        ("invalid-argument-ci-container", "kfd-refused"),
        ("loaded-but-out-of-resources-therock", "hsa-init-failed"),
        ("module-not-loaded", "driver-not-loaded"),
        ("no-such-file-a", "no-kfd"),
        ("no-such-file-b", "no-kfd"),
        ("operation-not-permitted", "kfd-refused"),
        ("permission-denied-not-in-render-group", "permission-denied"),
        ("permission-denied-though-in-render-group", "permission-denied"),
        ("rocm1.x-call-returned-4104", "hsa-init-failed"),
        ("rocm3.1-out-of-resources", "hsa-init-failed"),
        ("wsl-failure", "unsupported-gpu"),
    ],
)
def test_forms_of_failure(name, state):
    info = rocminfo.parse((FIXTURES / "rocminfo-fail-forms" / f"{name}.txt").read_text())
    assert info.agents == ()
    assert info.failure.state == state
    assert info.failure.meaning
    assert "johndoe" not in str(info)


@recorded
def test_every_recorded_failure_is_understood():
    texts = [path for path in (FIXTURES / "issues-rocminfo-fail").glob("*.txt") if path.name != "SOURCE.txt"]
    assert len(texts) > 80
    for path in texts:
        info = rocminfo.parse(path.read_text(errors="replace"))
        assert info.failure, path.name
        assert info.failure.line, path.name


@recorded
@every_row(
    ("run", "states"),
    [
        ("1-root-no-dev-kfd", {"no-kfd"}),
        ("2-root-dev-kfd-without-driver", {"no-kfd"}),
        ("3-nobody-dev-kfd-0660", {"permission-denied"}),
        ("4-unknown-uid-dev-kfd-0660", {"permission-denied"}),
        ("5-root-dev-kfd-regular-file", {"hsa-init-failed"}),
        ("6-nobody-no-dev-kfd", {"no-kfd"}),
        # Release 5.2 does not look whether the module is live.
        ("7-root-initstate-not-live", {"driver-not-loaded", "no-kfd"}),
    ],
)
def test_real_programs_of_three_releases(run, states):
    outputs = sorted((FIXTURES / "SEMI-real-rocminfo-kfd-failures").glob(f"*/{run}.stdout"))
    assert len(outputs) == 3
    assert {rocminfo.parse(path.read_text()).failure.state for path in outputs} == states


@recorded
def test_real_programs_without_a_driver():
    for system in ("debian12", "debian-trixie", "debian-sid"):
        folder = FIXTURES / f"{system}-real-binaries-no-gpu"
        for path in folder.glob("*smi*.stderr"):
            if path.read_text() and not re.search("version|help|-h$", path.stem):
                assert failure(path.read_text()).state == "driver-not-loaded", path
        assert failure((folder / "rocminfo.stdout").read_text()).state == "driver-not-loaded"
