"""Generated parts of the documents, and the schema of the results: ``python docs/generate.py``.

A part lies between ``<!-- generated: NAME -->`` and ``<!-- end of generated -->``. The text around a part is
written by hand. The parts of the catalogue are not committed: the site's hook fills them (``site_hook.py``).
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import click
import msgspec

from rocmprobe.checks import CHECKS
from rocmprobe.cli.base import COMMANDS, command
from rocmprobe.cli.help import grouped_options
from rocmprobe.engine.journal import AnyRecord
from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.causes import Cause, Remedy, causes, layers
from rocmprobe.knowledge.compatibility import Answer, relations
from rocmprobe.knowledge.options import STATUSES, Option, options
from rocmprobe.knowledge.settings import all_settings
from rocmprobe.knowledge.solvers import solvers
from rocmprobe.knowledge.stacks import has_code, stacks
from rocmprobe.knowledge.variables import find
from rocmprobe.model.options import WrittenOptions
from rocmprobe.model.results import RUNGS, SCHEMA_VERSION, Results, WrittenProblem
from rocmprobe.model.states import STATES
from rocmprobe.report.terminal import settings_table
from rocmprobe.simulate.machines import load_machine, machine_names

HERE = Path(__file__).parent
CATALOGUE = HERE / "catalogue.md"
SCHEMA = HERE.parent / "rocmprobe" / "data" / "results.schema.json"
#: All dtypes of a solver. The table lists a solver's dtypes only if it lacks some of these.
_DTYPES = ("float32", "float16", "bfloat16")
_BEGIN, _END = "<!-- generated: {} -->", "<!-- end of generated -->"
_PART = re.compile(_BEGIN.format(r"(\w+)") + r"\n.*?" + _END, re.DOTALL)
#: Pages whose generated parts are committed.
PAGES = tuple(
    page for page in sorted(HERE.glob("*.md")) if page != CATALOGUE and _PART.search(page.read_text("utf-8"))
)
#: Cards and their chips.
_CARDS = {
    "RX 5600, 5700": "gfx1010", "Radeon Pro V520, Pro 5600M": "gfx1011", "RX 5300, 5500": "gfx1012",
    "BC-250": "gfx1013", "RX 6800, 6900": "gfx1030", "RX 6700, 6750": "gfx1031", "RX 6600": "gfx1032",
    "RX 7900": "gfx1100", "RX 7700, 7800": "gfx1101", "RX 7600": "gfx1102", "RX 9060": "gfx1200",
    "RX 9070": "gfx1201", "RX Vega 56, 64": "gfx900", "Radeon VII": "gfx906",
}  # fmt: skip
#: Words for the build and the system of a pair.
_BUILT = {
    "official": "PyTorch's wheel", "amd": "AMD's build", "distribution": "a distribution's",
    "community": "a community's", "self": "an own build", "": "",
}  # fmt: skip
_SYSTEMS = {"linux": "Linux", "wsl": "WSL", "windows": "Windows"}
#: The remedy on each simulated machine, in the order of the table.
_HELPS = {
    "healthy-gfx1100": "nothing is needed",
    "rdna1-rocm52-conv-dead": "vendor library off, bypass",
    "winograd-wrong": "`no-faulty-solvers`: one switch",
    "bn-dead": "for training `batch-norm-pytorch`; vendor library off",
    "rocblas-files-missing": "solvers without GEMM, for inference",
    "wheel-without-arch": "the CPU",
    "conv-hang": "vendor library off, bypass",
    "stale-cache": "`clean-db`",
}


def document(page: Path) -> str:
    """Return the text of a page with its parts generated again."""
    return filled(page.read_text("utf-8"))


def filled(text: str) -> str:
    """Return ``text`` with its parts generated again."""
    return _PART.sub(_made, text)


def _made(part: re.Match[str]) -> str:
    return "\n".join([_BEGIN.format(part[1]), *PARTS[part[1]](), _END])


def _settings() -> Iterator[str]:
    yield from markdown_table(
        ("setting", "title", "library", "set", "what it sets", "where it applies", "why", "cost"),
        (
            (
                *(row.name, row.title, row.libraries, row.chosen, "<br>".join(map(_code, row.sets))),
                *(row.where, row.why, row.cost),
            )
            for row in settings_table.rows()
        ),
    )
    yield from ("", "How PyTorch calls MIOpen, by PyTorch's version:", "")
    yield from markdown_table(
        ("way", "versions", "flags"), [(*row[:2], _code(row[2])) for row in settings_table.search_rows()]
    )


def _cures() -> Iterator[str]:
    yield from markdown_table(("failing rung", "cures, smallest change first"), settings_table.cure_rows())


def _code(text: str) -> str:
    return f"`{text}`" if "=" in text else text


def markdown_table(header: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table. Its cells are Markdown already."""
    lines = [header, ["---"] * len(header), *body]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _checks() -> Iterator[str]:
    rows = sorted(CHECKS.values(), key=lambda check: RUNGS.index(check.rung))
    yield from markdown_table(
        ("check", "rung", "question"), ((f"`{row.name}`", row.rung, _cell(row.question)) for row in rows)
    )


def _states() -> Iterator[str]:
    yield from markdown_table(
        ("", "state", "meaning"), ((row.symbol, row.name, row.meaning) for row in STATES.values())
    )


def _solvers() -> Iterator[str]:
    yield from markdown_table(
        ("solver", "family", "directions", "dtypes", "switched off by"),
        (
            (
                each.name,
                each.family,
                ", ".join(each.directions),
                ", ".join(each.dtypes) if len(each.dtypes) < len(_DTYPES) else "",
                "<br>".join(f"`{name}=0`" for name in each.off),
            )
            for each in solvers()
        ),
    )


def _variables() -> Iterator[str]:
    """Yield the table of the variables that settings set."""
    rows = {name: find(name) for setting, _, _ in all_settings() for name in setting.env}
    yield from markdown_table(
        ("variable", "read by", "what it does"),
        ((f"`{name}`", row.of, _cell(row.effect)) for name, row in rows.items() if row),
    )


def _machines() -> Iterator[str]:
    differ = set(machine_names()) ^ set(_HELPS)
    if differ:
        raise SystemExit(f"_HELPS: not the machines that ship: {', '.join(sorted(differ))}")
    yield from markdown_table(
        ("machine", "what it is", "what helps"),
        ((f"`{name}`", _cell(load_machine(name).summary), helps) for name, helps in _HELPS.items()),
    )


def _stacks() -> Iterator[str]:
    """Yield the table of the stacks and their chips."""
    yield from markdown_table(
        ("stack", "what", "torch", "Python", "systems", "code for", "source"),
        (
            (
                f"`{stack.name}`",
                _cell(stack.title),
                stack.torch or "moves",
                ", ".join(sorted(stack.python, key=lambda each: int(each.split(".")[1]))),
                ", ".join(stack.distributions or stack.systems),
                ", ".join(f"`{row.gfx}`" for row in gpus.all_targets() if has_code(stack, row.gfx)),
                _linked_sources(f"{stack.source} ({stack.date})"),
            )
            for stack in stacks()
        ),
    )


def _evidence() -> Iterator[str]:
    """Yield the table of the reports on each stack for RDNA1 cards."""
    chips = ("gfx1010", "gfx1011", "gfx1012", "gfx1013")
    systems = ("linux", "wsl", "windows")
    found = {
        (gfx, system): {each.stack.name: each for each in options(gfx, system)}
        for gfx in chips
        for system in systems
    }
    rows = []
    for stack in stacks():
        for system in systems:
            here = [found[gfx, system].get(stack.name) for gfx in chips]
            if any(here):
                rows.append((f"`{stack.name}`", system, *(_short(option) for option in here)))
    yield from markdown_table(("stack", "system", *(f"`{gfx}`" for gfx in chips)), rows)


def _short(option: Option | None) -> str:
    if option is None:
        return "no code"
    return f"{option.status}, as `{option.runs_as}`" if option.lent else option.status


def _statuses() -> Iterator[str]:
    yield from markdown_table(("word", "meaning"), STATUSES.items())


def _cards() -> Iterator[str]:
    """Yield the table of cards: stacks with code for each, and the reports on the best one."""
    rows = []
    for card, gfx in _CARDS.items():
        target = gpus.target(gfx)
        assert target is not None
        first = options(gfx, "linux", "ubuntu")[0]
        rows.append(
            (
                card,
                f"`{gfx}`",
                target.wheels or "none",
                "yes" if target.amd_wheels else "no",
                f"`{first.stack.name}`: {_short(first)}",
            )
        )
    yield from markdown_table(
        ("card", "chip", "official wheels with code for it", "AMD's wheels", "first on Linux"), rows
    )


def _causes() -> Iterator[str]:
    for layer in layers():
        here = [cause for cause in causes() if cause.layer == layer.name]
        if here:
            title = _text(layer.title)
            yield from (f"### {layer.name}", "", f"{title[:1].upper()}{title[1:]}.", "")
        for cause in here:
            yield from _cause(cause)
            yield ""


def _cause(cause: Cause) -> Iterator[str]:
    yield f"#### {cause.name}"
    yield ""
    yield f"**{_text(cause.title)}.** {_text(cause.explanation)}"
    yield ""
    yield "What to do:"
    yield ""
    for remedy in cause.remedy:
        yield f"- {_condition(remedy)}{_text(remedy.does)}{_remedy_commands(remedy)}"
    yield ""
    yield f"To verify: {_text(cause.verify)}"
    yield ""
    yield f"To confirm the cause: {_text(cause.confirm)}"
    yield ""
    yield f"Source: {_text(cause.source)}. See " + ", ".join(f"<{link}>" for link in cause.links) + "."


def _condition(remedy: Remedy) -> str:
    if not remedy.when:
        return ""
    words = [f"not `{word[4:]}`" if word.startswith("not-") else f"`{word}`" for word in remedy.when]
    return f"{', '.join(words)}: "


def _remedy_commands(remedy: Remedy) -> str:
    """Return the commands of a remedy, after its sentence."""
    commands = [*remedy.commands]
    if remedy.stack:
        commands.append("rocmprobe install")
    if remedy.setting:
        commands.append(f"rocmprobe exec --setting {remedy.setting} -- python train.py")
    return "".join(f" `{command}`" for command in commands)


def _relations() -> Iterator[str]:
    yield from markdown_table(
        ("relation", "asks", "source"),
        (
            (f"`{each.name}`", _cell(each.asks), _linked_sources(_cell(each.source.replace(" below", ""))))
            for each in relations()
        ),
    )


def _pairs() -> Iterator[str]:
    """Yield the reported result of each pair next to the result of the relations."""
    table = _module("pairs")
    rows = [(pair, *table.said(pair)) for pair in table.pairs()]
    count = Counter(verdict for _, verdict, _ in rows)
    works = sum(pair["outcome"] == "works" for pair, *_ in rows)
    own = sum(
        verdict == "agrees" and pair["outcome"] == "works" and any(each.certain for each in by)
        for pair, verdict, by in rows
    )
    yield f"{len(rows)} pairs: {works} reported to work, {len(rows) - works} to fail."
    yield f"{own} of those that agree rest on nothing but who built the stack."
    yield ""
    yield from markdown_table(
        ("answer", "pairs", "meaning"),
        ((name, str(count[name]), meaning) for name, meaning in table.VERDICTS.items()),
    )
    yield ""
    yield from markdown_table(
        ("chip", "stack", "reported", "answer", "by the relations", "source"),
        (_pair(pair, verdict, by) for pair, verdict, by in rows),
    )


def _pair(pair: Mapping[str, Any], verdict: str, by: Iterable[Answer]) -> tuple[str, ...]:
    posing = f", override {pair['override']}" if "override" in pair else ""
    torch = f"torch {pair['torch']}" if re.match(r"\d", pair.get("torch", "")) else pair.get("torch", "")
    rocm = f"ROCm {pair['rocm']}" if "rocm" in pair and f"rocm{pair['rocm']}" not in torch else ""
    words = (torch, rocm, _BUILT[pair.get("built", "")], _SYSTEMS[pair["system"]])
    answer = "; ".join(
        f"{'' if each.holds or each.stops else 'a risk: '}{each.says} ({_source(pair, each)})" for each in by
    )
    date = f" ({pair['date']})" if "date" in pair else ""
    return (
        f"`{pair['gfx']}`{posing}",
        _cell(", ".join(filter(None, words))),
        _cell(f"{pair['outcome']}: {pair['text']}"),
        verdict,
        _linked_sources(_cell(" ".join(filter(None, (answer, pair.get("differs")))))),
        _linked_sources(f"{pair['source']}{date}"),
    )


def _source(pair: Mapping[str, Any], answer: Answer) -> str:
    """Return the source of an answer. For a reported pair, a certain answer rests on its builder, not on
    its files."""
    return "by whoever built it" if answer.certain and "built" in pair else answer.source


def _keys() -> Iterator[str]:
    """Yield a section for each class of ``results.json``, with the table of its keys."""
    classes = json.loads(results_schema())["$defs"]
    pending, seen = ["Results"], {"Results"}
    while pending:
        name = pending.pop(0)
        description, keys = classes[name]["description"], classes[name]["properties"]
        bullets = re.findall(r"^- (``.+?``): (.*(?:\n(?!-|\n).*)*)", description, re.MULTILINE)
        meanings = {key: text for names, text in bullets for key in re.findall(r"\w+", names)}
        plain = re.sub(r"^- ``(.|\n(?!\n))*", "", description, flags=re.MULTILINE)
        if seen != {"Results"}:
            yield from (f"### {name}", "")
        yield from (_json_words(plain.strip()), "")
        yield from markdown_table(
            ("key", "type", "meaning"),
            (
                (f"`{key}`", _type(kind), _json_words(" ".join(meanings.get(key, "").split())))
                for key, kind in keys.items()
            ),
        )
        yield ""
        for each in re.findall(r"#/\$defs/(\w+)", json.dumps(keys)):
            if each not in seen:
                seen.add(each)
                pending.append(each)


def _type(kind: Mapping[str, Any]) -> str:
    """Return the type of a key in words. A class is a link to its section."""
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in kind:
        return " or ".join(_type(each) for each in kind["anyOf"])
    if "enum" in kind:
        return ", ".join(f"`{each}`" if each != "" else "empty" for each in kind["enum"])
    within = kind.get("items") or kind.get("additionalProperties")
    word = {"array": "list", "boolean": "true or false", None: "any"}.get(kind.get("type"), kind.get("type"))
    return f"{word} of {_type(within)}" if isinstance(within, dict) and within else str(word)


def _json_words(docstring: str) -> str:
    """Return a docstring as Markdown, with the constants of JSON in place of those of Python."""
    constants = {"None": "null", "True": "true", "False": "false"}
    words = re.sub(r"\b(None|True|False)\b", lambda each: constants[each[0]], docstring.replace("``", "`"))
    return _cell(words)


def _records() -> Iterator[str]:
    yield from markdown_table(
        ("record", "contents", "keys"),
        (
            (
                f"`{msgspec.inspect.type_info(each).tag}`",
                _json_words(" ".join((each.__doc__ or "").split())),
                ", ".join(f"`{key}`" for key in each.__struct_fields__),
            )
            for each in get_args(AnyRecord)
        ),
    )


def _linked_sources(text: str) -> str:
    return re.sub(r"(https://[^\s;,()]+)", r"<\1>", text)


def _module(name: str) -> ModuleType:
    """Load a module from this folder, which is not always on the import path."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _commands() -> Iterator[str]:
    for name in COMMANDS:
        yield from _command(name, command(name))
        yield ""


def _command(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"rocmprobe {name}")
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    yield f"## {name}"
    if arguments:
        yield ""
        yield f"Arguments: `{' '.join(_argument(each) for each in arguments)}`."
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield ""
        if paragraph.startswith("\b\n"):
            yield "```sh"
            yield from (line.strip() for line in paragraph.splitlines()[2:])
            yield "```"
        else:
            yield _text(_linked(" ".join(paragraph.split())))
    groups = {
        title: [_option(each) for each in options if "--help" not in each.opts]
        for title, options in grouped_options(command, context).items()
    }
    groups = {title: rows for title, rows in groups.items() if rows}
    for title, rows in groups.items():
        if len(groups) > 1:
            yield from ("", f"**{title}**")
        yield ""
        yield from markdown_table(("option", "values", "meaning", "default"), rows)


def _argument(argument: click.Argument) -> str:
    if isinstance(argument.type, click.Choice):
        return "|".join(argument.type.choices)
    name = argument.metavar or (argument.name or "").upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option: click.Option) -> tuple[str, str, str, str]:
    if isinstance(option.type, click.Choice):
        values = ", ".join(f"`{each}`" for each in option.type.choices)
    elif option.is_flag:
        values = ""
    else:
        values = option.metavar or option.type.name.upper()
    words = option.help or ""
    if option.multiple:
        words += " May be given more than once."
    if option.required:
        words += " Required."
    default = f"`{option.default}`" if option.show_default else ""
    return ", ".join(f"`{each}`" for each in option.opts), values, _cell(_linked(words.strip())), default


def _linked(text: str) -> str:
    """Return ``text`` with each named page as a link that shows the title of the page."""

    def link(name: re.Match[str]) -> str:
        title = (HERE / name[1]).read_text("utf-8").partition("\n")[0].lstrip("# ")
        return f"([{title[:1].lower() if not title[1:2].isupper() else title[:1]}{title[1:]}]({name[1]}))"

    return re.sub(r"\(docs/([\w-]+\.md)\)", link, text)


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")


def _text(text: str) -> str:
    """Return ``text`` with HTML and emphasis escaped, except in code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<>*])", r"\\\1", part) for part in parts)


#: Functions that yield the lines of each generated part.
PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "settings": _settings,
    "cures": _cures,
    "checks": _checks,
    "states": _states,
    "keys": _keys,
    "records": _records,
    "solvers": _solvers,
    "variables": _variables,
    "machines": _machines,
    "causes": _causes,
    "stacks": _stacks,
    "evidence": _evidence,
    "statuses": _statuses,
    "cards": _cards,
    "commands": _commands,
    "relations": _relations,
    "pairs": _pairs,
}


def results_schema() -> str:
    """Return the text of the schema of ``results.json``, made from the classes of the results.

    Each class has one line.
    """
    kinds = (Results, WrittenOptions, WrittenProblem)
    places, classes = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    # Options and problems are dictionaries in the program, because they keep keys that it does not know.
    classes["Results"]["properties"]["options"] = places[1]
    classes["Results"]["properties"]["problems"]["items"] = places[2]
    for each in classes.values():
        # Python 3.13 removes the indentation of docstrings, older versions keep it.
        each["description"] = inspect.cleandoc(each["description"])
        # msgspec 0.23 adds the default {} of dictionaries, older versions leave it out.
        for member in each.get("properties", {}).values():
            if member.get("default") == {}:
                del member["default"]
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"rocmprobe results, schema_version {SCHEMA_VERSION}",
        **places[0],
    }
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(classes.items()))
    return f'{json.dumps(schema)[:-1]}, "$defs": {{\n{lines}\n}}}}\n'


if __name__ == "__main__":
    SCHEMA.write_text(results_schema(), "utf-8")
    for each in PAGES:
        each.write_text(document(each), "utf-8")
