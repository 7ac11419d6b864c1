"""What the setting by-layer comes to, from what each kind of layer and convolution did."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rows import every_row

from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import Case
from rocmprobe.knowledge.layers import (
    OPTIONS,
    by_layer,
    failing,
    holds,
    install_line,
    layer_checks,
    refuse_foreign,
)
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.knowledge.solvers import DerivedSetting
from rocmprobe.model.results import BadInput, Outcome, Setting

SETTINGS = {setting.name: setting for setting in settings_for("miopen", torch="2.6.0")}


def outcome(check: str, state: str = "error", dtype: str = "float32", setting: str = "default") -> Outcome:
    case = Case("cuda:0", "torch", setting, check, dtype)
    return Outcome(case.id, "cuda:0", "torch", setting, check, case.rung, state, dtype=dtype)


def test_every_layer_is_a_check_and_has_a_keyword_of_the_bypass():
    torch = pytest.importorskip("torch")
    assert torch
    from rocmprobe.bypass.other_layers import KINDS

    assert set(OPTIONS) == set(KINDS) == {layer.option for layer in layer_checks()}
    assert {check for checks in layer_checks().values() for check in checks} <= set(CHECKS)


def test_what_fails_in_the_library_is_sent_to_pytorch():
    asked = [
        outcome("batch-norm"),
        outcome("gru", "crash"),
        outcome("lstm", "pass"),
        outcome("ctc-loss", "n/a"),
    ]
    assert failing(asked, "training") == ("batch_norm", "rnn")
    assert failing([outcome("batch-norm", dtype="float16")], "training") == ("batch_norm",)
    assert failing([outcome("convolution-add-relu", "wrong")], "inference") == ("fused_convolution",)

    # What tells nothing of the library is no reason.
    assert failing([outcome("batch-norm", dtype="float64")], "training") == ()
    assert failing([replace(outcome("rnn", "aborted"), failure="run-died")], "training") == ()
    assert failing([outcome("rnn", "blocked")], "training") == ()
    assert failing([outcome("batch-norm")], "inference") == ()
    assert failing([outcome("batch-norm-eval")], "inference") == ("batch_norm",)


def test_convolution_stays_native_where_all_of_it_holds():
    # Convolution holds where all that was asked in float32 does.
    assert holds([outcome("convolution", "pass"), outcome("convolution", "error", "float16")])
    assert holds([outcome("convolution", "slow"), outcome("convolution", "n/a")])
    for states in (("pass", "error"), ("pass", "blocked"), ("n/a",), ()):
        assert not holds([outcome("convolution", state) for state in states])

    # Convolution as it comes is native.
    setting = applied(("batch_norm",), "default")
    assert (setting.verdict, dict(setting.env), setting.pytorch_layers) == ("native", {}, ("batch_norm",))
    assert not setting.unchanged

    # Of the cures the one with the fewest switches is taken.
    setting = applied(("batch_norm", "rnn"), "gemm-only", "naive-only", "no-winograd", "find-fast")
    assert setting.verdict == "native-with-settings"
    assert setting.env == {"MIOPEN_DEBUG_CONV_WINOGRAD": "0"}
    assert "as under no-winograd" in setting.reason
    found = applied(("rnn",), "find-fast")
    assert (found.torch, found.search) == (SETTINGS["find-fast"].torch, "find")


def applied(options: tuple[str, ...], *cures: str) -> Setting:
    return by_layer(options, [SETTINGS[name] for name in cures]).applied(SETTINGS["by-layer"])


@every_row(
    ("options", "cures", "why"),
    [((), ["default"], "no tested layer fails"), (("rnn",), [], "no setting makes convolution work")],
)
def test_where_there_is_nothing_to_combine_it_is_skipped(options, cures, why):
    made = by_layer(options, [SETTINGS[name] for name in cures])
    assert (made.env, made.state) == (None, "skipped")
    assert why in made.reason
    assert made.applied(SETTINGS["by-layer"]).is_incomplete


def test_the_line_that_sends_layers():
    # A journal of before tells no layers.
    assert DerivedSetting({"A": "0"}, "", "why").applied(SETTINGS["no-faulty-solvers"]).env == {"A": "0"}

    # The line that sends layers.
    assert install_line(("rnn",)) == 'rocmprobe.bypass.install(convolution="native", rnn="pytorch")'
    assert install_line((), bypass=True) == "rocmprobe.bypass.install()"


@every_row(
    "strange",
    [{"env": {"LD_PRELOAD": "x.so"}}, {"torch": {"cuda.enabled": True}}, {"pytorch_layers": ("softmax",)}],
)
def test_what_no_setting_has_is_refused(strange):
    refuse_foreign(applied(("batch_norm",), "find-fast"), "--verify")
    with pytest.raises(BadInput, match="--verify: settings: "):
        refuse_foreign(replace(SETTINGS["by-layer"], **strange), "--verify")
