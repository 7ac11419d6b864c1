"""Symbols for severities."""

from __future__ import annotations

SEVERITY_SYMBOLS = {"error": "✕", "warning": "▲", "info": "i"}
