"""Flags of torch.backends, in a worker, in a user's program and as lines to copy."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from rocmprobe.backends import BACKENDS
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.knowledge.settings import Versions
from rocmprobe.model.results import Setting
from rocmprobe.torch_flags import FLAGS, MissingFlag, set_flag, statement

torch = pytest.importorskip("torch")
MATH = {"cuda.enable_flash_sdp": False, "cuda.enable_mem_efficient_sdp": False}
FUSED = hasattr(torch.backends.cuda, "enable_mem_efficient_sdp")


def fused():
    return (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled())


@pytest.mark.skipif(not FUSED, reason="torch before 2.0 has no fused attention")
def test_attention_by_math_in_a_worker_and_as_lines_to_copy():
    from rocmprobe.worker.torch_driver import holding

    setting = Setting("attention-math", "", "native-with-settings", torch=MATH)
    before = fused()
    with holding(setting, BACKENDS["onednn"], nullcontext, Versions("oneDNN"))():
        assert fused() == (False, False)
    assert fused() == before
    try:
        exec("import torch\n" + "\n".join(statement(*each) for each in MATH.items()))
        assert fused() == (False, False)
    finally:
        for name, value in zip(MATH, before):
            set_flag(torch, name, value)


def test_a_torch_before_fused_attention_has_nothing_to_switch_off():
    old = SimpleNamespace(
        __version__="1.13.1", backends=SimpleNamespace(cuda=SimpleNamespace(), cudnn=SimpleNamespace())
    )
    for name, value in MATH.items():
        assert set_flag(old, name, value) is None
    with pytest.raises(MissingFlag, match=r"torch 1.13.1 has no torch.backends.miopen.immediate"):
        set_flag(old, "miopen.immediate", True)


def test_a_flag_that_this_torch_lacks_is_not_applicable():
    from rocmprobe.worker.torch_driver import holding

    setting = Setting("", "", "native-with-settings", torch={"cudnn.benchmark": True, "cudnn.of_later": True})
    held = holding(setting, BACKENDS["onednn"], nullcontext, Versions("oneDNN"))
    with pytest.raises(NotApplicable, match=r"no torch.backends.cudnn.of_later"), held():
        pass
    assert not torch.backends.cudnn.benchmark


def test_each_flag_has_a_statement():
    for name in FLAGS:
        compile(statement(name, True), name, "exec")
