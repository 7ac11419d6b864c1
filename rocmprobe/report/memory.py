"""What was measured of memory, as a table."""

from __future__ import annotations

from typing import Optional

from rocmprobe.model import Results
from rocmprobe.report.measures import Table, table
from rocmprobe.report.states import LOOKS


def memory(results: Results) -> Optional[Table]:
    mine = [outcome for outcome in results.outcomes if outcome.check == "memory" and outcome.memory]
    if not mine:
        return None
    rows = [
        {
            "problem": outcome.problem or outcome.id,
            "setting": outcome.setting,
            "state": f"{LOOKS[outcome.state].symbol} {outcome.state}",
            **outcome.memory,
        }
        for outcome in mine
    ]
    found = table(rows, ("problem", "setting", "state"))
    return Table(tuple(name.replace(" bytes", "") for name in found.header), found.rows)
