"""Known failures from ``data/expectations.toml``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Optional

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from rocmprobe.checks import CHECKS
from rocmprobe.knowledge.causes import causes
from rocmprobe.knowledge.settings import all_settings
from rocmprobe.knowledge.solvers import forced_setting, solvers
from rocmprobe.knowledge.stacks import broken
from rocmprobe.model.problems import DTYPES, KINDS
from rocmprobe.model.results import DIRECTIONS, BadInput, Machine, Outcome
from rocmprobe.model.results_file import from_json
from rocmprobe.text import reading
from rocmprobe.text.tables import table_text

#: States that a known failure can have.
_EXPECTABLE = ("wrong", "error", "crash", "hang", "flaky")
_CPU = "cpu"
_NEEDED = ("settings", "checks", "states", "cause", "reason", "link", "date")
_VERSIONS = ("rocm", "miopen", "torch")
_LONGEST_REASON = 140


@dataclass(frozen=True)
class Expectation:
    """A known failure: one row of ``data/expectations.toml``. That file explains the fields."""

    id: str
    settings: tuple[str, ...]
    checks: tuple[str, ...]
    states: tuple[str, ...]
    cause: str
    reason: str
    link: str
    date: str
    native_isa: tuple[str, ...] = ("*",)
    effective_isa: tuple[str, ...] = ("*",)
    rocm: str = ""
    miopen: str = ""
    torch: str = ""
    kinds: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    directions: tuple[str, ...] = ()
    problem: str = "*"
    sometimes: bool = False

    def applies(self, machine: Machine, outcome: Outcome) -> bool:
        """Return True if this row is about the case that ``outcome`` tested on ``machine``."""
        problem = outcome.problem or ""
        return (
            outcome.setting != _CPU
            and outcome.check in self.checks
            and _any(self.settings, outcome.setting)
            and _any(self.native_isa, _bare(outcome.native_isa))
            and _any(self.effective_isa, _bare(outcome.effective_isa))
            and (not self.kinds or problem.partition("-")[0] in self.kinds)
            and (not self.dtypes or outcome.dtype in self.dtypes)
            and (not self.directions or outcome.direction in self.directions)
            and fnmatchcase(problem, self.problem)
            and all(
                not wanted or _satisfied(wanted, _version(machine, name))
                for name, wanted in zip(_VERSIONS, (self.rocm, self.miopen, self.torch))
            )
        )


def _any(patterns: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _bare(isa: Optional[str]) -> str:
    return (isa or "").partition(":")[0]


def _version(machine: Machine, of: str) -> str:
    """Return the version of ROCm, torch or MIOpen that a case used, or "" if unknown."""
    if of == "torch":
        return str(machine.value("torch.version") or "")
    if of == "miopen":
        return str(machine.value("miopen.version") or "")
    # The third number of HIP's version counts builds.
    numbers = re.match(r"\d+\.\d+", str(machine.value("torch.hip") or machine.value("rocm.version") or ""))
    return numbers[0] if numbers else ""


@lru_cache(maxsize=256)
def _satisfied(wanted: str, version: str) -> bool:
    """Return True if ``version`` is valid and satisfies the specifier ``wanted``."""
    try:
        return SpecifierSet(wanted).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def observed(outcome: Outcome) -> Outcome:
    """Return ``outcome`` with its observed state in place of "xfail" or "xpass"."""
    if outcome.expected is None:
        return outcome
    return replace(outcome, state=outcome.expected.state, expected=None)


@lru_cache(maxsize=1)
def expectations() -> tuple[Expectation, ...]:
    """Return every known failure in the table."""
    return read_expectations(table_text("expectations"), "data/expectations.toml")


def read_expectations(text: str, name: str) -> tuple[Expectation, ...]:
    """Parse the text of a table of known failures. Raise BadInput for the first invalid row.

    ``name`` is the name of the table in error messages.
    """
    data = reading.toml_of(text.encode(), name, "fix that line")
    strangers = sorted(set(data) - {"expectation"})
    rows = data.get("expectation", [])
    if strangers or not isinstance(rows, list):
        raise BadInput(f"{name}: {', '.join(strangers) or 'expectation'}: a row begins with [[expectation]]")
    by_id: dict[str, Expectation] = {}
    for number, row in enumerate(rows, 1):
        label = f"{name}: row {number}"
        if not isinstance(row, Mapping) or not re.fullmatch(r"[a-z0-9-]+", str(row.get("id", ""))):
            raise BadInput(f"{label}: id is missing or invalid; use lowercase letters, digits and hyphens")
        label = f"{label} ({row['id']})"
        if row["id"] in by_id:
            raise BadInput(f"{label}: another row has this id; use a new one")
        fault = row.get("broken", "")
        if fault and fault not in _faults():
            raise BadInput(f"{label}: broken: no {fault!r}; there are {', '.join(_faults())}")
        whole = {**_faults().get(fault, {}), **{key: row[key] for key in row if key != "broken"}}
        wrong = _wrong(whole)
        if wrong:
            raise BadInput(f"{label}: {wrong}")
        by_id[row["id"]] = from_json(Expectation, whole)
    return tuple(by_id.values())


@lru_cache(maxsize=1)
def _faults() -> Mapping[str, Mapping[str, Any]]:
    """Return the fields of an expectation for each named [[broken]] row of stacks.toml."""
    return {
        row.name: {
            "native_isa": list(row.gfx),
            "effective_isa": [row.effective or "*"],
            **_range("rocm", row.rocm_since, row.rocm_until),
            **_range("torch", row.torch_since, row.torch_until),
            "cause": row.cause,
            "reason": row.title,
            "link": row.source.split()[0].rstrip(";,"),
            "date": row.date[:7],
        }
        for row in broken()
        if row.name
    }


def _range(what: str, since: str, until: str) -> dict[str, str]:
    limits = [f">={since}"] * bool(since) + [f"<={until}"] * bool(until)
    return {what: ",".join(limits)} if limits else {}


def _wrong(row: Mapping[str, Any]) -> str:
    known = {field.name: field for field in fields(Expectation)}
    for key, value in row.items():
        if key not in known:
            return f"{key} is not a field of a row; the fields are {', '.join(known)}"
        kind = str(known[key].type)
        if kind == "bool" and not isinstance(value, bool):
            return f"{key} is not true or false; write one of them"
        if kind == "str" and not (isinstance(value, str) and value and "\n" not in value):
            return f"{key} is not one line of text; write it in quotes"
        if kind.startswith("tuple") and not _texts(value):
            return f"{key} is not a list of texts; write it in brackets"
    missing = [key for key in _NEEDED if key not in row]
    if missing:
        return f"{missing[0]} is missing; every row has {', '.join(_NEEDED)}"
    if "native_isa" not in row and "effective_isa" not in row:
        return "it names no chip; give native_isa, effective_isa or both"
    return _strange_word(row) or _bad_version(row) or _bad_source(row)


def _texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) and text for text in value)


def _strange_word(row: Mapping[str, Any]) -> str:
    vocabularies: Mapping[str, Sequence[str]] = {
        "checks": tuple(CHECKS),
        "states": _EXPECTABLE,
        "kinds": tuple(KINDS),
        "dtypes": tuple(DTYPES.values()),
        "directions": DIRECTIONS,
    }
    for key, words in vocabularies.items():
        for word in row.get(key, ()):
            if word not in words:
                return f"{key}: no {word!r}; there are {', '.join(words)}"
    if row["cause"] not in {cause.name for cause in causes()}:
        return f"cause: no {row['cause']!r}; `rocmprobe list causes` shows all causes"
    names = [setting.name for setting, _, _ in all_settings()]
    names += [forced_setting(solver).name for solver in solvers()]
    for pattern in row["settings"]:
        if not any(fnmatchcase(name, pattern) for name in names if name != _CPU):
            return f"settings: {pattern!r} is not a setting of a GPU; see `rocmprobe list settings`"
    return ""


def _bad_version(row: Mapping[str, Any]) -> str:
    for key in _VERSIONS:
        try:
            SpecifierSet(row.get(key, ""))
        except InvalidSpecifier:
            return f"{key}: {row[key]!r} is not a version specifier; write it as in '>=5.3,<6.1'"
    return ""


def _bad_source(row: Mapping[str, Any]) -> str:
    if not re.fullmatch(r"https://[^\s<>\"]+", row["link"]):
        return "link is not an https address; name the thread or source that documents it"
    if not re.fullmatch(r"20\d\d(-(0[1-9]|1[0-2]))?", row["date"]):
        return "date is not a year or year-month; write it as in '2023-10'"
    if len(row["reason"]) > _LONGEST_REASON:
        return f"reason is longer than {_LONGEST_REASON} characters; the link has the rest"
    return ""
