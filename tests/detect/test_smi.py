"""What rocm-smi and amd-smi print, over releases that renamed most of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import every_row

from rocmprobe.detect.programs.smi import parse_amd_smi, parse_rocm_smi

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
recorded = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not on this machine")
CAPTURED = FIXTURES / "SEMI-real-binaries-on-captured-sysfs"

CONCISE = """
Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    VRAM%  GPU%
              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)
===============================================================================================================
0       2     0x74a1,   1971   47.0°C      133.0W    NPS1, QPX, 0        126Mhz  900Mhz  0%   auto  0%     0%
1       3     0x74a1,   49074  48.0°C      133.0W    NPS1, QPX, 1        136Mhz  900Mhz  0%   auto  0%     0%
"""
BOX = """
| AMD-SMI 26.0.2+39589fda      amdgpu version: 6.14.14  ROCm version: 7.0.2    |
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
|=====================================+========================================|
| 0000:2d:00.0  AMD Radeon RX 9070 XT | 6 %      62 °C   0           189/266 W |
|   0       0     N/A             N/A | 100 %   29.8 %          11541/16304 MB |
"""
STATIC = """GPU: 0
    ASIC:
        MARKET_NAME: AMD Radeon RX 7900 XTX
        DEVICE_ID: 0x744c
        REV_ID: 0xc8
        ASIC_SERIAL: 0x0123456789ABCDEF
        NUM_COMPUTE_UNITS: 96
        TARGET_GRAPHICS_VERSION: gfx1100
    BUS:
        BDF: 0000:03:00.0
    DRIVER:
        NAME: amdgpu
        VERSION: 6.12.12
    VRAM:
        SIZE: 24560 MB
"""


def test_tables():
    # ROCm smi table.
    smi = parse_rocm_smi(CONCISE)
    assert [(gpu.index, gpu.pci_id, gpu.temperatures) for gpu in smi.gpus] == [
        (0, "0x74a1", {"junction": 47.0}),
        (1, "0x74a1", {"junction": 48.0}),
    ]

    # ROCm smi lines.
    text = (
        "GPU[0]\t\t: Card Series: \t\tInstinct MI210\nGPU[0]\t\t: Device Rev: \t\t0x02\n"
        "GPU[0]\t\t: GFX Version: \t\tgfx90a\nGPU[0]\t\t: VRAM Total Memory (B): 68702699520\n"
    )
    (gpu,) = parse_rocm_smi(text).gpus
    assert (gpu.name, gpu.revision, gpu.gfx, gpu.vram_bytes) == (
        "Instinct MI210",
        "0x02",
        "gfx90a",
        68702699520,
    )

    # AMD smi table.
    smi = parse_amd_smi(BOX)
    (gpu,) = smi.gpus
    assert (gpu.name, gpu.address) == ("AMD Radeon RX 9070 XT", "0000:2d:00.0")
    assert (gpu.vram_bytes, gpu.vram_used_bytes) == (16304 << 20, 11541 << 20)
    assert smi.driver == "6.14.14"

    # Warnings around JSON.
    text = 'WARNING: asleep\n[user@host ~]# rocm-smi --json\n{"card0": {"Device ID": "0x7550"}}\nERROR: 2\n'
    assert parse_rocm_smi(text).gpus[0].pci_id == "0x7550"


@every_row(
    ("text", "celsius"),
    [
        (" GPU  Temp   AvgPwr  SCLK  MCLK\n 1    31.0c  7.0W    1269Mhz  945Mhz\n", 31.0),
        (" GPU  DID    Temp     AvgPwr   SCLK\n  1   6863   60.0c    11.0W    852Mhz\n", 60.0),
        ("GPU  Temp (DieEdge)  AvgPwr  SCLK\n1    44.0c           9.0W    0Mhz\n", 44.0),
    ],
)
def test_older_tables_of_rocm_smi(text, celsius):
    (gpu,) = parse_rocm_smi(text).gpus
    assert (gpu.index, gpu.temperatures) == (1, {"edge": celsius})


@every_row(
    ("printed", "gfx"),
    [
        ("gfx11002", "gfx1102"),
        ("gfx1036", "gfx1036"),
        ("gfx90a", "gfx90a"),
        ("N/A", None),
        ("gfx110020", None),
    ],
)
def test_gfx_version_with_a_digit_too_many(printed, gfx):
    text = json.dumps({"card0": {"GFX Version": printed}})
    assert parse_rocm_smi(text).gpus[0].gfx == gfx


@every_row("wrapped", [False, True])
def test_amd_smi_static_as_text_and_json(wrapped):
    asic = {
        "market_name": "AMD Radeon RX 7900 XTX",
        "device_id": "0x744c",
        "rev_id": "0xc8",
        "asic_serial": "0x0123456789ABCDEF",
        "num_compute_units": 96,
        "target_graphics_version": "gfx1100",
    }
    block = {
        "gpu": 0,
        "asic": asic,
        "bus": {"bdf": "0000:03:00.0"},
        "driver": {"version": "6.12.12"},
        "vram": {"size": {"value": 24560, "unit": "MB"}},
    }
    from_json = parse_amd_smi(json.dumps({"gpu_data": [block]} if wrapped else [block], indent=4))
    assert from_json == parse_amd_smi(STATIC)
    (gpu,) = from_json.gpus
    assert (gpu.name, gpu.gfx, gpu.pci_id, gpu.revision) == (
        "AMD Radeon RX 7900 XTX",
        "gfx1100",
        "0x744c",
        "0xc8",
    )
    assert (gpu.cus, gpu.vram_bytes, from_json.driver) == (96, 24560 << 20, "6.12.12")
    assert "0123456789" not in str(from_json)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(
                ["card0", "system", "gpu", "gpu_data", "asic", "vram", "size", "value", "temperature"]
            ),
            inner,
        )
    ),
)


@given(
    st.one_of(
        st.text(), JSON.map(json.dumps), st.lists(st.sampled_from((CONCISE + BOX + STATIC).split("\n")))
    )
)
def test_arbitrary_text_never_raises(text):
    text = text if isinstance(text, str) else "\n".join(text)
    assert isinstance(parse_rocm_smi(text).gpus, tuple)
    assert isinstance(parse_amd_smi(text).gpus, tuple)


@every_row("piece", ["\n", " ", "{", "[{", "GPU[0] : a:", "0 ", "GPU: 0\n  A:\n", "| 0000:2d:00.0 "])
def test_long_monotonous_text(piece):
    text = BOX + CONCISE + piece * (200_000 // len(piece))
    parse_rocm_smi(text)
    parse_amd_smi(text)


@recorded
def test_two_navi_10_without_a_first_card():
    text = (FIXTURES / "rocm-smi-json-rdna1-navi10-x2-rocm3.8" / "rocm-smi-a--json.json").read_text()
    smi = parse_rocm_smi(text)
    assert [(gpu.index, gpu.pci_id, gpu.address) for gpu in smi.gpus] == [
        (1, "0x731f", "0000:3b:00.0"),
        (2, "0x731f", "0000:86:00.0"),
    ]
    assert smi.driver == "5.6.15"
    assert smi.gpus[0].temperatures == {"edge": 49.0, "junction": 49.0, "memory": 50.0}


@recorded
@every_row(
    ("name", "pci_id", "revision", "gfx", "vram"),
    [
        ("rx6700xt_rocm430", "0x73df", None, None, 12868124672),
        ("rx6700xt_rocm571", "0x73df", None, None, 12868124672),
        ("rx6700xt_rocm602", "0x73df", "0xc1", None, 12868124672),
        ("rx6700xt_rocm612", "0x73df", "0xc1", "gfx1031", 12868124672),
        ("mi100_rocm571", "0x738c", None, None, 34342961152),
        ("mi100_rocm602", "0x738c", "0x01", None, 34342961152),
        ("vega-10-XT", "0x6861", None, None, 17163091968),
        ("vega-20-WKS-GL-XE", "0x66a1", None, None, 34342961152),
    ],
)
def test_json_over_releases(name, pci_id, revision, gfx, vram):
    smi = parse_rocm_smi((FIXTURES / "rocm-smi-json-telegraf" / f"{name}.json").read_text())
    gpu = smi.gpus[0]
    assert (gpu.pci_id, gpu.revision, gpu.gfx, gpu.vram_bytes) == (pci_id, revision, gfx, vram)
    assert smi.driver
    assert not (gpu.name or "").startswith("0x")
    assert "692024000810" not in str(smi)


@recorded
@every_row("form", ["rocm-smi-a--json", "rocm-smi-a", "rocm-smi"])
@every_row("release", ["bookworm", "trixie", "sid"])
def test_three_releases_on_one_rx_5700_xt(release, form):
    folder = CAPTURED / f"rx5700xt-{release}"
    smi = parse_rocm_smi((folder / f"{form}.stdout").read_text() + (folder / f"{form}.stderr").read_text())
    (gpu,) = smi.gpus
    assert gpu.temperatures["edge"] == 58.0
    if form != "rocm-smi":
        assert (gpu.pci_id, gpu.address) == ("0x731f", "0000:28:00.0")
        assert gpu.gfx == (None if release == "bookworm" else "gfx1010")


@recorded
@every_row("form", ["static", "static--json"])
def test_amd_smi_on_captured_sysfs(form):
    smi = parse_amd_smi((CAPTURED / "rx5700xt-sid" / f"amd-smi-{form}.stdout").read_text())
    (gpu,) = smi.gpus
    assert (gpu.address, gpu.vram_bytes) == ("0000:28:00.0", 8176 << 20)
    assert "Navi 10" in gpu.name


@recorded
def test_pasted_tables():
    headers = (FIXTURES / "issues-rocm-smi" / "TABLE_HEADERS.tsv").read_text().splitlines()[1:]
    for line in headers:
        path, _, header = line.partition("\t")
        # One table is of hardware, and one has no rows.
        if "GFX VER" not in header and "ROCm-2995" not in path:
            assert parse_rocm_smi((FIXTURES / path).read_text()).gpus, path
