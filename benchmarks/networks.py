"""Problems of ``networks.toml``, at the size for a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.text.tables import toml

_FORM = re.compile(r"(\d+)x(\d+)([kt])(\d+)(?:s(\d+))?(?:g(\d+))?@(\d+)")


def network_problems(device_type: str, names: tuple[str, ...], batch: int) -> Iterator[tuple[str, Problem]]:
    """Yield network and fp32 problem, each problem once, with the first network that has it.

    ``batch`` is in samples. Raise SystemExit for an unknown network.
    """
    table = toml(Path(__file__).with_name("networks.toml").read_text("utf-8"))["network"]
    unknown = set(names) - {row["name"] for row in table}
    if unknown:
        raise SystemExit(
            f"no network {', '.join(unknown)}; there are {', '.join(row['name'] for row in table)}"
        )
    seen = set()
    for row in table:
        if names and row["name"] not in names:
            continue
        shrink = row["image"] // row["cpu"] if device_type == "cpu" else 1
        for word in row["problems"].split():
            problem = parse_problem(_text(word, batch, shrink))
            if problem.text not in seen:
                seen.add(problem.text)
                yield row["name"], problem


def _text(word: str, batch: int, shrink: int) -> str:
    match = _FORM.fullmatch(word)
    assert match is not None, word
    channels, filters, form, kernel, stride, groups, side = match.groups()
    kind = "conv2d" if form == "k" else "conv_transpose2d"
    size = int(side) // shrink
    text = f"{kind}-fp32-n{batch}-c{channels}-i{size}x{size}-k{filters}-f{kernel}x{kernel}"
    if stride:
        text += f"-s{stride}"
    if form == "k" and int(kernel) > 1:
        text += f"-p{int(kernel) // 2}"
    return text + (f"-g{groups}" if groups else "")
