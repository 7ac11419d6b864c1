"""Fingerprints of labelled corpora for ``rocmprobe/data/known_reports.json``.

Run ``python benchmarks/known_reports.py FILE..``. A FILE has one JSON object per line, as for
``explain_score.py``. ``--outcomes FILE`` has a sentence on how each thread ended, by the id of the record.
The text of a thread becomes a fingerprint and is not kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import click

from rocmprobe.explain.known_reports import fingerprint
from rocmprobe.knowledge import causes
from rocmprobe.text.log import of_text

RESULT = Path(__file__).resolve().parent.parent / "rocmprobe/data/known_reports.json"
ABOUT = (
    "Public reports: address, cause, how it ended in a sentence of ours, chip and versions, and a "
    "fingerprint of "
    "the log (explain/known_reports.py). Made by benchmarks/known_reports.py."
)


@click.command()
@click.argument("corpora", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--outcomes", required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", default=RESULT, type=click.Path(path_type=Path))
def main(corpora: tuple[Path, ...], outcomes: Path, output: Path) -> None:
    """Add the threads of corpora to the known reports. A thread that is there already is made anew."""
    lines = outcomes.read_text("utf-8").splitlines()
    ended = {row["id"]: row["outcome"] for row in map(json.loads, lines)}
    reports = {row["url"]: row for row in json.loads(output.read_text("utf-8"))["reports"]}
    for line in (line for corpus in corpora for line in corpus.read_text("utf-8").splitlines()):
        row = json.loads(line)
        if row["id"] in ended and (report := _report(row, ended[row["id"]])):
            reports[row["url"]] = report
    rows = ",\n".join(f"  {json.dumps(reports[url])}" for url in sorted(reports))
    output.write_text(f'{{"about": {json.dumps(ABOUT)},\n "reports": [\n{rows}\n]}}\n', "utf-8")
    print(f"{len(reports)} reports in {output}")


def _report(row: Mapping[str, Any], outcome: str) -> Optional[dict[str, str]]:
    """Return a thread as an entry of the file, or None if its log is too short for a fingerprint."""
    text = row["log"] if isinstance(row["log"], str) else "\n".join(row["log"])
    hashes = "".join(sorted(fingerprint(of_text(text))))
    known = {
        "url": row["url"],
        "cause": row["cause"]
        if row["cause"] in {each.name for each in causes.causes()} - {"unknown"}
        else "",
        "outcome": outcome,
        "gfx": row.get("true_gfx") or "",
        "rocm": row.get("rocm") or "",
        "torch": row.get("torch") or "",
    }
    return (
        {**{key: value for key, value in known.items() if value}, "fingerprint": hashes} if hashes else None
    )


if __name__ == "__main__":
    main()
