"""Output of findings on a terminal, and styled text."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from rocmprobe.model.results import Finding
from rocmprobe.report.symbols import SEVERITY_SYMBOLS
from rocmprobe.report.terminal.lines import print_paragraph
from rocmprobe.text import readable as text

SEVERITY_STYLES = {"error": "red", "warning": "yellow", "info": "cyan"}


def print_findings(findings: Iterable[Finding], console: Console) -> None:
    for number, finding in enumerate(findings):
        if number == 0:
            console.print(styled(("\nFindings", "bold")))
        style = SEVERITY_STYLES[finding.severity]
        symbol = f"{SEVERITY_SYMBOLS[finding.severity]} "
        possible = "possibly " if finding.confirm else ""
        blame = f"  {finding.layer}, {possible}{finding.cause}"
        console.print(styled((symbol, style), (finding.title, "bold"), (blame, "dim")))
        if finding.advice:
            print_paragraph(Text(text.plain(finding.advice)), console, 2)
        for label, words in (("Remedy", finding.remedy), ("To confirm the cause", finding.confirm)):
            if words:
                print_paragraph(styled((f"{label}: ", "dim"), (words, "")), console, 2)


def styled(*parts: tuple[str, str]) -> Text:
    """Return pairs of text and style as one Text, without interpreting markup in the texts."""
    line = Text()
    for part, style in parts:
        line.append(text.plain(part), style)
    return line
