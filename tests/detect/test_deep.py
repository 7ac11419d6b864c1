"""Asking torch in a child."""

from __future__ import annotations

import importlib.util
import json
import os
import sys

import pytest

from rocmprobe.detect.stack import deep


@pytest.fixture
def torch_of(tmp_path):
    """An environment whose torch is this text."""

    def environ(text):
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text(text)
        path = os.pathsep.join([str(tmp_path), *(place for place in sys.path if place)])
        return {**os.environ, "PYTHONPATH": path}

    return environ


FAKE = """
print("noise from C++"); print("[1, 2")
__version__ = "2.4.1"
class version: hip = "6.1.40093-7a39d5d83"; cuda = None
class Properties:
    name = "AMD Radeon RX 5700"; gcnArchName = "gfx1030"; multi_processor_count = 18
    total_memory = 8573157376; uuid = "secret"
class cuda:
    get_arch_list = staticmethod(lambda: ["gfx900", "gfx1030"])
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    get_device_properties = staticmethod(lambda index: Properties)
class backends:
    class cudnn: version = staticmethod(lambda: 3001000); enabled = True; benchmark = False
    class miopen: immediate = True
    class cuda:
        preferred_blas_library = staticmethod(lambda: "_BlasBackend.Cublaslt")
        @staticmethod
        def preferred_rocm_fa_library(): raise RuntimeError("this build has no such library")
"""


def test_what_torch_tells(torch_of):
    facts = deep.query_torch(60, torch_of(FAKE))
    assert {name: fact.value for name, fact in facts.items()} == {
        "deep.version": "2.4.1",
        "deep.hip": "6.1.40093-7a39d5d83",
        "deep.cuda": None,
        "deep.library": "3.1.0",
        "deep.arch_list": ["gfx900", "gfx1030"],
        "deep.available": True,
        "deep.device_count": 1,
        "deep.devices": [
            {
                "name": "AMD Radeon RX 5700",
                "gcnArchName": "gfx1030",
                "multi_processor_count": 18,
                "total_memory": 8573157376,
            }
        ],
        "deep.switches": {
            "cudnn.enabled": True,
            "cudnn.benchmark": False,
            "miopen.immediate": True,
            "cuda.preferred_blas_library": "cublaslt",
        },
    }
    assert facts["deep.arch_list"].source == "torch.cuda.get_arch_list()"


def test_questions_that_raise_or_crash_keep_what_was_told_before(torch_of):
    crash = "import os\ncuda.device_count = staticmethod(lambda: os.kill(os.getpid(), 11))\n"
    crash += "def broken(): 1 / 0\ncuda.get_arch_list = staticmethod(broken)\n"
    facts = deep.query_torch(60, torch_of(FAKE + crash))
    assert facts["deep.arch_list"].source == "torch.cuda.get_arch_list(): ZeroDivisionError: division by zero"
    assert facts["deep.available"].value is True
    assert facts["deep.device_count"].value is None
    assert facts["deep.device_count"].source == f"torch.cuda.device_count(): {facts['deep.error'].value}"
    assert facts["deep.error"].value.startswith("SIGSEGV")


def test_torch_that_cannot_be_imported(torch_of):
    facts = deep.query_torch(
        60, torch_of("raise ImportError('libMIOpen.so.1: cannot open shared object file')")
    )
    assert facts["deep.error"].value == (
        "import torch: ImportError: libMIOpen.so.1: cannot open shared object file"
    )
    assert [name for name, fact in facts.items() if fact.value is not None] == ["deep.error"]
    assert len(facts) == 10


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed")
def test_the_installed_torch_beside_files_of_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    facts = deep.query_torch()
    assert "deep.error" not in facts
    assert facts["deep.version"].value
    assert json.dumps({name: fact.value for name, fact in facts.items()})
