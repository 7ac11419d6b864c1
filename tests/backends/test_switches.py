"""Switching a vendor library off, metering memory, versions: on the CPU, and with cuDNN's flags."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from rocmprobe.backends import Cudnn, Miopen, Onednn
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.knowledge.solvers import Solver, forced_setting, solvers

torch = pytest.importorskip("torch")
MIB = 1 << 20


class TestVendorLibraryOff:
    @pytest.mark.parametrize(
        ("backend", "module"),
        [(Onednn(), "mkldnn"), (Cudnn(), "cudnn"), (Miopen(), "cudnn")],
        ids=["onednn", "cudnn", "miopen"],
    )
    @pytest.mark.parametrize("before", [True, False])
    def test_the_flag_comes_back_whatever_happens(self, backend, module, before, monkeypatch):
        flags = getattr(torch.backends, module)
        monkeypatch.setattr(flags, "enabled", before)
        with suppress(ZeroDivisionError), backend.vendor_library_off():
            assert not flags.enabled
            raise ZeroDivisionError
        assert flags.enabled == before

    def test_contexts_nest(self):
        before = torch.backends.mkldnn.enabled
        with Onednn().vendor_library_off():
            with Onednn().vendor_library_off():
                pass
            assert not torch.backends.mkldnn.enabled
        assert torch.backends.mkldnn.enabled == before

    @pytest.mark.parametrize("backend", [Cudnn(), Miopen()], ids=["cudnn", "miopen"])
    def test_other_flags_stay(self, backend, monkeypatch):
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
        with backend.vendor_library_off():
            assert torch.backends.cudnn.benchmark


class TestMeter:
    def test_a_known_pattern(self):
        with Onednn().meter("cpu") as meter:
            first = torch.empty(4 * MIB, dtype=torch.uint8)
            second = torch.empty(2 * MIB, dtype=torch.uint8)
            del first
            third = torch.empty(3 * MIB, dtype=torch.uint8)
        assert meter.peak_bytes == 6 * MIB
        assert second.numel() + third.numel() == 5 * MIB

    def test_what_lived_before_is_not_counted(self):
        before = torch.empty(8 * MIB, dtype=torch.uint8)
        with Onednn().meter("cpu") as meter:
            after = torch.empty(3 * MIB, dtype=torch.uint8)
        assert meter.peak_bytes == after.numel()
        assert before.numel() == 8 * MIB

    def test_nothing(self):
        with Onednn().meter("cpu") as meter:
            pass
        assert meter.peak_bytes == 0

    def test_a_failure_passes_through(self):
        with pytest.raises(ZeroDivisionError), Onednn().meter("cpu"):
            raise ZeroDivisionError


class TestVersion:
    def test_onednn_s_is_that_of_torch(self):
        if not torch.backends.mkldnn.is_available():
            pytest.skip("this torch has no oneDNN")
        assert re.fullmatch(r"\d+\.\d+(\.\d+)*", Onednn().library_version())

    @pytest.mark.parametrize(
        ("packed", "version"), [(2017000, "2.17.0"), (3003000, "3.3.0"), (3004001, "3.4.1")]
    )
    def test_miopen_s_is_unpacked(self, packed, version, monkeypatch):
        monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
        monkeypatch.setattr(torch.backends.cudnn, "version", lambda: packed)
        assert Miopen().library_version() == version

    def test_none_without_a_library(self, monkeypatch):
        monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: False)
        assert Cudnn().library_version() is None
        assert Miopen().library_version() is None


def test_synchronize_on_a_cpu_waits_for_nothing():
    assert Onednn().synchronize("cpu") is None


def test_only_onednn_owes_exactness():
    assert [backend.demands_exactness() for backend in (Onednn(), Cudnn(), Miopen())] == [True, False, False]


@pytest.mark.parametrize(
    ("names", "exact"),
    [
        (("gemm-only",), True),
        (("igemm-only",), True),
        (("naive-only",), True),
        (("find-normal", "gemm-only"), True),
        (("no-gemm",), False),
        (("no-winograd",), False),
        (("winograd-only",), False),
        (("no-winograd", "winograd-only"), True),
    ],
)
def test_miopen_owes_exact_results_if_the_variables_disable_winograd_and_fft(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], exact: bool
) -> None:
    rows = {each.name: each for each in settings_for("miopen", "all")}
    for name in names:
        for variable, value in rows[name].env.items():
            monkeypatch.setenv(variable, value)
    assert Miopen().demands_exactness() is exact


@pytest.mark.parametrize("solver", solvers(), ids=lambda solver: solver.name)
def test_miopen_owes_exact_results_if_the_only_solver_is_exact(
    monkeypatch: pytest.MonkeyPatch, solver: Solver
) -> None:
    monkeypatch.setenv(*next(iter(forced_setting(solver).env.items())))
    assert Miopen().demands_exactness() is (solver.family not in ("Winograd", "FFT"))
