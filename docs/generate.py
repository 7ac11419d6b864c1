"""Write ``docs/causes.md`` from ``rocmprobe/data/causes.toml``: ``python docs/generate.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rocmprobe.knowledge.causes import Advice, Cause, causes, decisions, layers

DOCUMENT = Path(__file__).with_name("causes.md")
_HEAD = """\
# Causes

Why something fails: all causes that a finding of `rocmprobe run`, or an answer of
[`rocmprobe explain`](explain.md), may name, by the layer in which they usually sit, the lowest first.
`rocmprobe list causes` prints them in short. By what you see: [troubleshooting](troubleshooting.md).

Where several cures stand, the first whose words all hold is given. The words are what is known of the
machine or the log: `rdna1` to `rdna4`, `vega`, `cdna` and `apu` the kind of chip; `override` that
HSA_OVERRIDE_GFX_VERSION is set, `override-lacks` and `override-covers` whether the silicon lacks something
of the ISA that it names, `override-needless` that the installed libraries hold code for the chip itself;
`wheel-holds` and `wheel-lacks` whether an official wheel holds code for the chip.
A cure is what others report under the links: **none has been run on a GPU by rocmprobe**.

This page is made from `rocmprobe/data/causes.toml` by `python docs/generate.py`."""


def document() -> str:
    """The whole page."""
    lines = [_HEAD]
    for layer in layers():
        here = [cause for cause in causes() if cause.layer == layer.name]
        if here:
            lines += [
                "",
                f"## {layer.name}",
                "",
                f"{_text(layer.title)[:1].upper()}{_text(layer.title)[1:]}.",
            ]
        for cause in here:
            lines += ["", *_section(cause)]
    return "\n".join(lines) + "\n"


def _section(cause: Cause) -> Iterator[str]:
    yield f"### {cause.name}"
    yield ""
    yield f"**{_text(cause.title)}.** {_text(cause.sentence)} {_text(cause.explanation)}"
    yield ""
    yield "What to do:"
    yield ""
    yield from (f"- {_condition(advice)}{_text(advice.text)}" for advice in cause.advice)
    yield ""
    yield f"To verify: {_text(cause.verify)}"
    rivals = list(_rivals(cause.name))
    yield ""
    yield f"What would decide: {_text(cause.confirm)}"
    if rivals:
        yield ""
        yield "Look-alikes:"
        yield ""
        yield from rivals
    yield ""
    yield f"Source: {_text(cause.source)}. See " + ", ".join(f"<{link}>" for link in cause.links) + "."


def _condition(advice: Advice) -> str:
    if not advice.when:
        return ""
    words = [f"not `{word[4:]}`" if word.startswith("not-") else f"`{word}`" for word in advice.when]
    return f"{', '.join(words)}: "


def _rivals(name: str) -> Iterator[str]:
    for pair, ask in decisions().items():
        if name in pair:
            (other,) = pair - {name}
            yield f"- [{other}](#{other}): {_text(ask)}"


def _text(text: str) -> str:
    """``text`` with what Markdown would take for HTML or emphasis made plain, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<>*])", r"\\\1", part) for part in parts)


if __name__ == "__main__":
    DOCUMENT.write_text(document(), "utf-8")
