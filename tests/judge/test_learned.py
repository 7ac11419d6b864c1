"""Causes and layers by the words of a log, and how they weigh beside the rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.explain.explain import explain
from rocmprobe.explain.learned import learned, pooled
from rocmprobe.explain.log_facts import Facts
from rocmprobe.knowledge.causes import causes, layers
from rocmprobe.text.log import of_text

NAMES = tuple(cause.name for cause in causes())
FULL = (
    "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 512.00 MiB (GPU 0; 5.98 GiB total "
    "capacity; 5.31 GiB already allocated; 20.00 MiB free; 5.50 GiB reserved in total by PyTorch) If "
    "reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation. See "
    "documentation for Memory Management and PYTORCH_HIP_ALLOC_CONF"
)


def distributions() -> st.SearchStrategy[dict[str, float]]:
    weights = st.dictionaries(st.sampled_from(NAMES), st.floats(0.01, 1.0), min_size=1, max_size=6)
    return weights.map(lambda each: {name: value / sum(each.values()) for name, value in each.items()})


def test_the_table_names_known_causes_and_layers() -> None:
    found = learned(of_text(FULL))
    assert found is not None
    assert set(found.causes) <= set(NAMES)
    assert set(found.layers) <= {layer.name for layer in layers()}
    assert sum(found.causes.values()) == pytest.approx(1.0)
    assert sum(found.layers.values()) == pytest.approx(1.0)


def test_words_of_many_reports_name_their_cause() -> None:
    found = learned(of_text(FULL))
    assert found is not None
    assert max(found.causes, key=lambda name: found.causes[name]) == "vram-oom"
    assert max(found.layers, key=lambda name: found.layers[name]) == "oom"


@pytest.mark.parametrize("text", ["", "epoch 1, loss 0.3", "RuntimeError: miopenStatusUnknownError"])
def test_too_few_words_say_nothing(text: str) -> None:
    assert learned(of_text(text)) is None


def test_frames_and_addresses_do_not_count() -> None:
    frames = "".join(f'  File "/v/{name}.py", line 3, in {name}\n    {name}(x)\n' for name in ("conv", "run"))
    assert learned(of_text(f"Traceback (most recent call last):\n{frames}{FULL}")) == learned(
        of_text(f"Traceback (most recent call last):\n{FULL} 0x7f01ab")
    )


@given(distributions(), distributions())
def test_pooled_shares_add_up_to_one_and_agree_with_both(
    rules: dict[str, float], known: dict[str, float]
) -> None:
    both = pooled(rules, known)
    assert sum(both.values()) == pytest.approx(1.0)
    assert all(share >= 0 for share in both.values())
    best = max(rules, key=lambda name: rules[name])
    if best != "unknown" and best == max(known, key=lambda name: known[name]):
        assert max(both, key=lambda name: both[name]) == best


def test_what_rules_do_not_know_is_learned() -> None:
    shares = {"unknown": 1.0}
    assert pooled(shares, {"vram-oom": 0.9, "unknown": 0.1})["vram-oom"] > 0.7
    assert pooled(shares, {"vram-oom": 0.3, "outside": 0.3, "unknown": 0.4})["vram-oom"] < 0.6


def test_an_override_is_a_fact_and_not_a_word_of_the_log() -> None:
    text = (
        ":0:rocdevice.cpp :2673: 1 us: 2: [tid:0x7f] Device::callbackQueue aborting with error : "
        "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory beyond the largest "
        "legal address. code: 0x29"
    )
    assert explain(of_text(text), Facts(true_gfx="gfx908")).causes[0].cause != "override-isa-mismatch"


def test_an_answer_for_amd_alone_says_so_if_the_log_names_no_gpu() -> None:
    crash = "CUDA error: no kernel image is available for execution on the device"
    question = "With an NVIDIA GPU, search for the message"
    unnamed = explain(of_text(crash), Facts())
    assert question in unnamed.action
    assert question not in explain(of_text(crash), Facts(true_gfx="gfx1010", gpu="RX 5700 XT")).action


def test_a_check_comes_before_advice_that_is_not_certain_and_is_not_asked_twice() -> None:
    found = explain(
        of_text(
            "RuntimeError: HIP error: invalid device function\n"
            "HIP kernel errors might be asynchronously reported at some other API call, so the "
            "stacktrace below might be incorrect.\nFor debugging consider passing AMD_SERIALIZE_KERNEL=3\n"
            "Compile with `TORCH_USE_HIP_DSA` to enable device-side assertions."
        ),
        Facts(),
    )
    assert found.summary.startswith("Perhaps: ")
    assert found.action.startswith("First check: ")
    assert "Only if it is so: " in found.action
    assert found.decide is None
