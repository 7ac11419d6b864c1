"""The GPU table, and names of GPUs in overrides."""

from __future__ import annotations

from collections import Counter

import pytest

from rocmprobe.knowledge import gpus


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("10.3.0", "gfx1030"),
        ("9.0.10", "gfx90a"),
        (" 11.0.0", "gfx1100"),
        ("11.5.1", "gfx1151"),
        ("+10. 3.\t0", "gfx1030"),
        ("010.03.00", "gfx1030"),
    ],
)
def test_override_names_a_target(text, name):
    assert gpus.isa_of_override(text) == name


def test_every_target_has_an_override():
    for row in gpus.all_targets():
        assert gpus.isa_of_override(gpus.override_of(row.gfx)) == row.gfx


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.3",
        "10.3.0.0",
        "gfx1030",
        "1030",
        "10.3.0 ",
        "10.3.x",
        "64.0.0",
        "10.256.0",
        "9.0.a",
        "-1.3.0",
        "10 .3.0",
        "10.3.0\n",
        "\uff11.0.0",
    ],
)
def test_override_that_rocm_rejects_names_none(text):
    assert gpus.isa_of_override(text) is None


def test_a_family_stands_for_its_targets():
    assert gpus.expand(["gfx90a", "RDNA1"]) == ("gfx90a", "gfx1010", "gfx1011", "gfx1012", "gfx1013")


@pytest.mark.parametrize(
    ("pci_id", "revision", "gfx", "name"),
    [
        ("0x731f", "0xca", "gfx1010", "AMD Radeon RX 5600 XT"),
        (0x731F, 0xC1, "gfx1010", "AMD Radeon RX 5700 XT"),
        ("1002:731F", "C4", "gfx1010", "AMD Radeon RX 5700"),
        ("0x7340", "0xc5", "gfx1012", "AMD Radeon RX 5500 XT"),
        ("0x7360", "0x41", "gfx1011", "AMD Radeon Pro 5600M"),
        ("0x73ff", "0xc1", "gfx1032", "AMD Radeon RX 6600 XT"),
        ("0x744c", "0xc8", "gfx1100", "AMD Radeon RX 7900 XTX"),
        ("0x7550", "0xc0", "gfx1201", "AMD Radeon RX 9070 XT"),
        ("0x740f", "0x02", "gfx90a", "AMD Instinct MI210"),
        ("0x731f", None, "gfx1010", None),
        ("0xffff", "0x00", None, None),
        ("rubbish", "rubbish", None, None),
        (None, None, None, None),
    ],
)
def test_pci_ids(pci_id, revision, gfx, name):
    assert gpus.gfx_of(pci_id) == gfx
    assert gpus.marketing_name(pci_id, revision) == name


def test_families():
    families = {
        "gfx1010": "RDNA1", "gfx1030": "RDNA2", "gfx1100": "RDNA3", "gfx1200": "RDNA4", "gfx900": "Vega",
        "gfx90a": "CDNA2",
    }  # fmt: skip
    assert {gfx: gpus.family(gfx) for gfx in families} == families
    assert gpus.family("gfx1010:xnack-") == "RDNA1"


def test_gfx1010_as_gfx1030_lacks_dot_instructions_and_workarounds():
    sentences = gpus.missing_features("gfx1010", "gfx1030")
    assert len(sentences) == 3
    assert "dot-product" in sentences[0]
    assert "gfx10.3" in sentences[1]
    assert "workarounds" in sentences[2]
    assert "dot-product" not in " ".join(gpus.missing_features("gfx1012", "gfx1030"))


def test_the_targets_of_rdna2_stand_for_each_other():
    for gfx in ("gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"):
        assert gpus.missing_features(gfx, "gfx1030") == ()


def test_another_major_version_is_another_encoding():
    assert len(gpus.missing_features("gfx90a", "gfx1030")) == 1
    assert "encoding" in gpus.missing_features("gfx1010", "gfx1100")[0]


@pytest.mark.parametrize(
    ("gfx", "wave", "features"),
    [
        ("gfx1010", 32, ("xnack",)),
        ("gfx1030", 32, ()),
        ("gfx1201", 32, ()),
        ("gfx803", 64, ()),
        ("gfx900", 64, ("xnack",)),
        ("gfx90a", 64, ("sramecc", "xnack")),
    ],
)
def test_wave_and_target_features(gfx, wave, features):
    target = gpus.target(f"{gfx}:xnack-")
    assert (target.wave, target.target_features) == (wave, features)


@pytest.mark.parametrize(
    ("pci_id", "apu"),
    [(0x15BF, True), (0x731F, False), (0x74A0, True), (0x74A1, False), (0xFFFF, None), (None, None)],
)
def test_apus(pci_id, apu):
    assert gpus.is_apu(pci_id) is apu


@pytest.mark.parametrize("unknown", [None, "", "gfx1310", "sm_90", 1010, 3.5, ["gfx1010"], {}])
def test_unknown_targets_are_no_error(unknown):
    assert gpus.family(unknown) is None
    assert gpus.chip(unknown) is None
    assert gpus.missing_features(unknown, "gfx1030") == ()
    assert gpus.missing_features("gfx1030", unknown) == ()
    assert gpus.target(unknown) is None
    assert gpus.gfx_of(unknown) is None
    assert gpus.marketing_name(unknown, unknown) is None


def test_table_is_consistent():
    tables = gpus._tables()
    ids = Counter(device for target in gpus.all_targets() for device in target.pci)
    assert [device for device, count in ids.items() if count > 1] == []
    for target in gpus.all_targets():
        assert target.source
        assert target.wave in (32, 64)
        assert set(target.target_features) <= {"sramecc", "xnack"}
        assert bool(target.rocm) == bool(target.rocm_source)
        assert set(target.features) <= set(tables.features)
        assert set(target.workarounds) <= set(tables.workarounds)
        assert {key.partition("/")[0] for key in target.names} <= set(target.pci)
        assert isinstance(target.apu, bool) or set(target.apu) <= set(target.pci)
        assert all(key == key.lower() for key in (*target.pci, *target.names))

    # Gfx1250 is known by its name alone.
    row = gpus.target("gfx1250:xnack+")
    assert (row.family, row.pci, row.wave, row.wheels) == ("CDNA5", (), 32, "")
    assert "gfx12.5" in gpus.missing_features("gfx1201", "gfx1250")[0]

    # Product is of exactly one revision.
    assert gpus.product("7341", "00") is None
    assert gpus.marketing_name("7341", "00") == "AMD Radeon Pro W5500"


@pytest.mark.parametrize(
    ("rocm", "torch", "held"),
    [
        ("5.2", "1.13.1", "900 906 908 90a 1030"),
        ("5.7", "2.2.0", "900 906 908 90a 1030 1100"),
        ("6.3", "2.7.1", "900 906 908 90a 942 1030 1100 1101 1102 1200 1201"),
        ("7.2", "2.13.0", "900 906 908 90a 942 950 1030 1100 1101 1102 1103 1150 1151 1200 1201"),
    ],
)
def test_what_a_generation_of_wheels_holds(rocm, torch, held):
    """PYTORCH_ROCM_ARCH of the build scripts of PyTorch (manywheel/build_docker.sh, build.sh)."""
    found = {target.gfx for target in gpus.all_targets() if gpus.in_wheel(target.gfx, torch, rocm)}
    assert found == {f"gfx{name}" for name in held.split()}
