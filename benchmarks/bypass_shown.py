"""Summary, table and plot of the figures of ``bypass.py``."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pygal

Rows = Sequence[Mapping[str, Any]]
MEGABYTE = 1 << 20


def summary(rows: Rows) -> dict[str, Any]:
    """Return geometric means of time ratios, extremes, memory and shares of the GEMM rate over ``rows``."""
    found: dict[str, Any] = {}
    for kind in ("fwd", "fwd_bwd"):
        found[kind] = {
            name: _ratios(rows, kind, over, under)
            for name, over, under in (
                ("bypass over native", "bypass", "native"),
                ("naive over bypass", "naive", "bypass"),
                ("off over bypass", "off", "bypass"),
                ("off over native", "off", "native"),
                ("naive over native", "naive", "native"),
                ("compiled over bypass", "compiled", "bypass"),
            )
            if all(over in row["seconds"] for row in rows)
        }
    shares = [each["mm"] / each["bypass"] for row in rows for each in row["gemm"].values()]
    found["share of the rate of torch.mm"] = {
        "median": statistics.median(shares), "least": min(shares), "directions": len(shares),
        "under 0.6": sum(share < 0.6 for share in shares),
    }  # fmt: skip
    memory = [row["memory"] for row in rows]
    found["memory"] = {
        "problems that keep other bytes for backward than native": sum(
            each["bypass"]["kept"] != each["native"]["kept"] for each in memory
        ),
        "largest peak above native's, MiB": max(
            (each["bypass"]["peak"] - each["native"]["peak"]) / MEGABYTE for each in memory
        ),
    }
    compilations = [row["seconds"]["compilation"] for row in rows if "compilation" in row["seconds"]]
    if compilations:
        found["seconds of compilation, median"] = statistics.median(compilations)
    return found


def _ratios(rows: Rows, kind: str, over: str, under: str) -> dict[str, Any]:
    ratios = {row["problem"]: row["seconds"][over][kind] / row["seconds"][under][kind] for row in rows}
    least = min(ratios, key=lambda text: ratios[text])
    return {
        "geometric mean": statistics.geometric_mean(ratios.values()),
        "least": ratios[least], "least at": least,
        "below 1": sum(ratio < 1 for ratio in ratios.values()), "problems": len(ratios),
    }  # fmt: skip


def write_table(figures: Mapping[str, Any], path: Path) -> None:
    rows: Rows = figures["rows"]
    names = [name for name in ("off", "naive", "bypass", "compiled") if name in rows[0]["seconds"]]
    head = ["problem", "native, ms", *names, "fwd", "bwd-data", "bwd-weights"]
    lines = [
        "Forward and backward in fp32, as multiples of native's time. "
        f"{figures['device']}, {figures['threads']} threads, torch {figures['torch']}, "
        f"median of {figures['rounds']} rounds. "
        "Made by `benchmarks/bypass.py`.",
        "",
        "| " + " | ".join(head) + " |",
        "|---|" + "---:|" * (1 + len(names)) + "---|" * 3,
    ]
    for row in rows:
        seconds = {name: row["seconds"][name]["fwd_bwd"] for name in ("native", *names)}
        cells = [f"{seconds[name] / seconds['native']:.2f}" for name in names]
        algorithms = [row["algorithms"][direction] for direction in ("fwd", "bwd-data", "bwd-weights")]
        lines.append(
            f"| {row['problem']} | {1e3 * seconds['native']:.2f} | {' | '.join(cells)} | "
            f"{' | '.join(algorithms)} |"
        )
    path.write_text("\n".join(lines) + "\n", "utf-8")


def write_plot(figures: Mapping[str, Any], path: Path) -> None:
    """Write a plot of each variant's multiples of native's time, sorted, with one curve per variant."""
    rows: Rows = figures["rows"]
    # This is a line chart, because pygal would make both axes of an XY chart logarithmic.
    chart = pygal.Line(
        title="Forward and backward, multiples of native's time (log scale)", logarithmic=True,
        x_title="problems, each curve in its own order", show_dots=False, width=900, height=480,
        style=pygal.style.CleanStyle, js=[], legend_at_bottom=True, stroke_style={"width": 2},
        x_labels=[str(number) for number in range(1, len(rows) + 1)], show_minor_x_labels=False,
        x_labels_major_every=10, truncate_label=-1,
    )  # fmt: skip
    for name in ("naive", "off", "bypass", "compiled"):
        if name in rows[0]["seconds"]:
            chart.add(
                name,
                sorted(row["seconds"][name]["fwd_bwd"] / row["seconds"]["native"]["fwd_bwd"] for row in rows),
            )
    path.write_bytes(chart.render())
