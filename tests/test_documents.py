"""The documents: links lead somewhere, the program takes the commands, generated pages are current."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import click
from rows import every_row

from rocmprobe.checks import CHECKS
from rocmprobe.cli.base import COMMANDS
from rocmprobe.cli.base import command as imported
from rocmprobe.explain.explain import explain
from rocmprobe.explain.log_facts import facts_in, facts_of, together
from rocmprobe.knowledge.settings import all_settings
from rocmprobe.model import exit_codes
from rocmprobe.simulate.machines import load_machine
from rocmprobe.text.log import of_text

ROOT = Path(__file__).parents[1]
DOCUMENTS = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("reports/**/README.md")),
    ROOT / "benchmarks" / "README.md",
)
#: Names of settings and checks that stand for many; * stands for any.
_WORDS = {"default", "all", "NAME", "NAMES", "ID", "CHECK", "SETTING"}

documents = every_row("path", DOCUMENTS)


def prose(path: Path) -> str:
    """A document without fenced code."""
    return re.sub(r"^(```+).*?^\1", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(path: Path) -> frozenset[str]:
    """Of the headings, as GitHub makes them: small letters, spaces to dashes, other signs left out."""
    found: list[str] = []
    for heading in re.findall(r"^#{1,6} +(.+?) *$", prose(path), flags=re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return frozenset(found)


def code(path: Path) -> Iterator[str]:
    """Lines of fenced code without comments and continuations, and code within sentences."""
    text = path.read_text("utf-8")
    for block in re.findall(r"^```.*?\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        yield from block.replace("\\\n", " ").splitlines()
    yield from (" ".join(part.split()) for part in re.findall(r"`([^`]+)`", prose(path)))


def commands(path: Path) -> Iterator[list[str]]:
    """The arguments of each call of rocmprobe, from its start to the end of the shell's command."""
    for line in code(path):
        for call in re.findall(r"(?:^|[\s|&;(=])rocmprobe ((?:[^|&;()#>'\"]|'[^']*'|\"[^\"]*\")*)", line):
            words = shlex.split(call)
            if words and re.fullmatch(r"-?-?[a-z]+", words[0]):
                yield words


def refused(words: list[str]) -> str:
    """Why the program would not take these arguments; empty where it would."""
    name, *arguments = words
    if name in ("--help", "-h", "--version"):
        return ""
    command = imported(name) if name in COMMANDS else None
    if command is None:
        return f"there is no command {name}"
    if not arguments:
        return ""
    try:
        context = command.make_context(name, [each for each in arguments if each != "..."])
    except click.exceptions.Exit:
        return ""
    except (click.MissingParameter, click.BadOptionUsage):
        # A sentence may name an option without its value.
        return ""
    except click.ClickException as error:
        return error.format_message()
    return _unknown(context.params) if name == "run" else ""


def _unknown(options: dict[str, object]) -> str:
    settings, checks = {setting.name for setting, _, _ in all_settings()}, set(CHECKS)
    asked = [("--settings", each, settings) for each in str(options["settings"]).split(",")]
    asked += [("--only", each, checks) for each in (*options["only"], *options["skip"])]  # type: ignore[misc]
    wrong = [
        f"{option} {each}" for option, each, known in asked if each not in known | _WORDS and "*" not in each
    ]
    machine = str(options["simulate"] or "")
    if machine and machine not in ("NAME", "MACHINE", "FILE.toml"):
        load_machine(machine)
    return ", ".join(wrong)


@documents
def test_links_lead_somewhere(path: Path) -> None:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        to = (path.parent / name).resolve() if name else path
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            wrong.append(target)
    assert not wrong


@documents
def test_tests_that_are_named_exist(path: Path) -> None:
    named = re.findall(r"\btests/[\w/]+\.py", path.read_text("utf-8"))
    assert [each for each in named if not (ROOT / each).exists()] == []


@documents
def test_commands_are_taken(path: Path) -> None:
    wrong = [f"rocmprobe {shlex.join(words)}: {why}" for words in commands(path) if (why := refused(words))]
    assert not wrong


def test_a_wrong_link_and_a_wrong_command_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A [b](c.md), `d`\n# e\n# e\n```sh\nrocmprobe run --levle long # x\n```\n"
        "`rocmprobe run --only nothing` `x | rocmprobe explain --json` `rocmprobe list moons`\n"
        "`rocmprobe prun`\n"
    )
    assert anchors(page) == {"a-b-d", "e", "e-1"}
    told = [refused(words) for words in commands(page)]
    assert [bool(why) for why in told] == [True, True, False, True, True]


def test_every_document_is_linked() -> None:
    linked = {
        (path.parent / target.partition("#")[0]).resolve()
        for path in DOCUMENTS
        for target in re.findall(r"\]\(([^)\s:]+)\)", prose(path))
    }
    assert set(DOCUMENTS) - linked <= {ROOT / "README.md", ROOT / "reports" / "README.md"}


def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_parts_and_schema_are_current() -> None:
    # Generated parts are current.
    # To mend it: python docs/generate.py
    made, texts = generate(), []
    for page in made.PAGES:
        texts.append(page.read_text("utf-8"))
        assert texts[-1] == made.document(page)
    assert sorted(re.findall(r"<!-- generated: (\w+) -->", "".join(texts))) == sorted(made.PARTS)

    # The schema of the results is current.
    # To write it again: python docs/generate.py
    made = generate()
    assert made.SCHEMA.read_text("utf-8") == made.results_schema()


def symptoms() -> list[tuple[str, str]]:
    """Each log in the document on troubleshooting, with the first cause that is named after it."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    blocks = re.finditer(r"^```text\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    likely = re.compile(r"^Likely: .*?\(catalogue\.md#([\w-]+)\)", flags=re.MULTILINE)
    return [(block[1], likely.findall(text, block.end())[0]) for block in blocks]


@every_row(("log", "cause"), symptoms())
def test_a_symptom_leads_to_the_cause_that_explain_names(log: str, cause: str) -> None:
    read = of_text(log)
    explanation = explain(read, together(facts_of({"gpu": "RX 5600 XT"}), facts_in(read)))
    assert next(each.cause for each in explanation.causes if each.cause != "unknown") == cause


def test_every_exit_code_is_in_its_table() -> None:
    text = (
        (ROOT / "docs" / "results.md").read_text("utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    )
    rows = {int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert rows == {value for value in vars(exit_codes).values() if isinstance(value, int)}
