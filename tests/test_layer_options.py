"""Layers that PyTorch's own kernels can compute, and what a setting from a file may contain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocmprobe.checks import CHECKS
from rocmprobe.knowledge.layers import (
    OPTIONS,
    install_line,
    layer_checks,
    refuse_foreign,
)
from rocmprobe.knowledge.settings import compose, with_cures
from rocmprobe.model.results import BadInput

SETTINGS = {setting.name: setting for setting in with_cures("miopen", "default", "2.6.0")}


def test_every_layer_is_a_check_and_has_a_keyword_of_the_bypass():
    torch = pytest.importorskip("torch")
    assert torch
    from rocmprobe.bypass.other_layers import KINDS

    assert set(OPTIONS) == set(KINDS) == {layer.option for layer in layer_checks()}
    assert {check for checks in layer_checks().values() for check in checks} <= set(CHECKS)


def test_the_line_that_sends_layers():
    assert install_line(("rnn",)) == 'rocmprobe.bypass.install(convolution="native", rnn="pytorch")'
    assert install_line((), bypass=True) == "rocmprobe.bypass.install()"


@pytest.mark.parametrize(
    "strange",
    [{"env": {"LD_PRELOAD": "x.so"}}, {"torch": {"cuda.enabled": True}}, {"pytorch_layers": ("softmax",)}],
)
def test_what_no_setting_has_is_refused(strange):
    layers = SETTINGS["batch-norm-pytorch"]
    refuse_foreign(compose([SETTINGS["find-fast"], layers]), "--verify")
    with pytest.raises(BadInput, match="--verify: settings: "):
        refuse_foreign(replace(layers, **strange), "--verify")
