"""Make ``rocmprobe/data/known_reports.json`` from labelled corpora: ``python benchmarks/known_reports.py
FILE..``.

A FILE holds one JSON object a line, as ``explain_score.py`` reads them. ``--outcomes FILE`` has our sentence
on how each thread ended, by the id of the record. The text of a thread becomes a fingerprint and is not kept.
"""

from __future__ import annotations

import json
from pathlib import Path

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
    lines = outcomes.read_text("utf-8").splitlines()
    ended = {row["id"]: row["outcome"] for row in map(json.loads, lines)}
    names = {row.name for row in causes.causes()} - {"unknown"}
    reports = {}
    for line in (line for corpus in corpora for line in corpus.read_text("utf-8").splitlines()):
        row = json.loads(line)
        text = row["log"] if isinstance(row["log"], str) else "\n".join(row["log"])
        hashes = "".join(sorted(fingerprint(of_text(text))))
        if hashes and row["id"] in ended:
            known = {
                "url": row["url"],
                "cause": row["cause"] if row["cause"] in names else "",
                "outcome": ended[row["id"]],
                "gfx": row.get("true_gfx") or "",
                "rocm": row.get("rocm") or "",
                "torch": row.get("torch") or "",
            }
            reports[row["id"]] = {
                **{key: value for key, value in known.items() if value},
                "fingerprint": hashes,
            }
    rows = ",\n".join(f"  {json.dumps(reports[name])}" for name in sorted(reports))
    output.write_text(f'{{"about": {json.dumps(ABOUT)},\n "reports": [\n{rows}\n]}}\n', "utf-8")
    print(f"{len(reports)} reports in {output}")


if __name__ == "__main__":
    main()
