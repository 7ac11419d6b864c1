"""Documents: the program accepts their commands, and generated parts are current.

``mkdocs build --strict`` checks the links (``.ci/run``).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
import yaml
from runs import environment

from rocmprobe import __version__
from rocmprobe.checks import CHECKS
from rocmprobe.cli.base import COMMANDS
from rocmprobe.cli.base import command as imported
from rocmprobe.explain.explain import diagnose, explain
from rocmprobe.explain.facts import facts_in, facts_of, merge_and_derive
from rocmprobe.knowledge.causes import causes
from rocmprobe.knowledge.settings import all_settings
from rocmprobe.model import exit_codes
from rocmprobe.simulate.machines import load_machine
from rocmprobe.text.log import of_text
from rocmprobe.text.tables import toml

ROOT = Path(__file__).parents[1]
_FOLDERS = ("benchmarks", "examples", "reports", "rocmprobe")
DOCUMENTS = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(page for name in _FOLDERS for page in (ROOT / name).rglob("README.md")),
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
)
#: Names of settings and checks that stand for many; * stands for any.
_WORDS = {"default", "all", "NAME", "NAMES", "ID", "CHECK", "SETTING"}

documents = pytest.mark.parametrize("path", DOCUMENTS)
#: The changelog also names commands of earlier releases.
CURRENT = [page for page in DOCUMENTS if page.name != "CHANGELOG.md"]
of_today = pytest.mark.parametrize("path", CURRENT)


def prose(path: Path) -> str:
    """Return a document without fenced code."""
    return re.sub(r"^(```+).*?^\1", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def code(path: Path) -> Iterator[str]:
    """Yield the lines of fenced code, with continuations joined, and the code within sentences."""
    text = path.read_text("utf-8")
    for block in re.findall(r"^```.*?\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        yield from block.replace("\\\n", " ").splitlines()
    yield from (" ".join(part.split()) for part in re.findall(r"`([^`]+)`", prose(path)))


def commands(path: Path) -> Iterator[list[str]]:
    """Yield the arguments of each call of rocmprobe, up to the end of the shell's command."""
    for line in code(path):
        for call in re.findall(r"(?:^|[\s|&;(=])rocmprobe ((?:[^|&;()#>'\"]|'[^']*'|\"[^\"]*\")*)", line):
            words = shlex.split(call)
            if words and re.fullmatch(r"-?-?[a-z]+", words[0]):
                yield words


def refused(words: list[str]) -> str:
    """Return why the program refuses these arguments, or "" if it accepts them."""
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
def test_tests_that_are_named_exist(path: Path) -> None:
    named = re.findall(r"\btests/[\w/]+\.py", path.read_text("utf-8"))
    assert [each for each in named if not (ROOT / each).exists()] == []


@of_today
def test_programs_that_are_called_exist(path: Path) -> None:
    own = re.compile(r"(benchmarks|docs|examples|reports/examples|suites|tests)/")
    calls = [line.split() for line in code(path) if re.match(r"(python|pytest) ", line)]
    named = [word for call in calls for word in call if own.match(word)]
    assert [each for each in named if not (ROOT / each).exists()] == []


def test_pages_that_the_program_names_exist() -> None:
    texts = "".join(path.read_text("utf-8") for path in (ROOT / "rocmprobe").rglob("*.py"))
    named = set(re.findall(r"\bdocs/([\w-]+\.md)(?:#([\w-]+))?", texts))
    assert len(named) > 5
    for name, anchor in named:
        headings = re.findall(r"^#+ (.*)", (ROOT / "docs" / name).read_text("utf-8"), re.MULTILINE)
        assert not anchor or anchor in [each.lower().replace(" ", "-") for each in headings]


@of_today
def test_blocks_of_code_have_no_syntax_errors(path: Path) -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for language, block in blocks:
        if language == "python":
            compile(block, str(path), "exec")
        elif language in ("sh", "bash"):
            subprocess.run(["bash", "-n", "-c", block], check=True)
        elif language == "toml":
            toml(block)
        elif language == "yaml":
            yaml.safe_load(block)


@of_today
def test_commands_are_taken(path: Path) -> None:
    wrong = [f"rocmprobe {shlex.join(words)}: {why}" for words in commands(path) if (why := refused(words))]
    assert not wrong


def test_a_wrong_command_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n```sh\nrocmprobe run --levle long # x\n```\n"
        "`rocmprobe run --only nothing` `x | rocmprobe explain --json` `rocmprobe list moons`\n"
        "`rocmprobe prun`\n"
    )
    errors = [refused(words) for words in commands(page)]
    assert [bool(error) for error in errors] == [True, True, False, True, True]


def calls(path: Path) -> Iterator[str]:
    """Yield the lines of shell blocks that call rocmprobe or a script from it, without installations."""
    text = path.read_text("utf-8")
    for block in re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            call = re.sub(r"^pip install [^&]*&& ", "", line)
            # Ultralytics is not installed, and tests/cli/test_own_check.py runs the suite.
            if re.search(r"(^|[\s(])rocmprobe |^python repro.py", call) and not re.search(
                "yolo|my_suite", call
            ):
                yield call


@pytest.mark.thorough
@pytest.mark.parametrize("path", [page for page in CURRENT if any(calls(page))], ids=lambda path: path.stem)
def test_commands_run(path: Path, tmp_path: Path) -> None:
    """Calls run on the CPU, with the files that the documents name. Most runs test one matrix product."""
    _write_program(
        tmp_path / "bin" / "rocmprobe",
        'case "$*" in *--verify*|*--help*) ;; run*--simulate*) set -- "$@" --only gemm --settings default ;;',
        'run*) set -- "$@" --only gemm --settings default --level quick --device cpu ;; esac',
        f'exec {sys.executable} -m rocmprobe "$@"',
    )
    _write_program(tmp_path / "bin" / "torchrun", f'exec {sys.executable} -m torch.distributed.run "$@"')
    _write_program(tmp_path / "bin" / "python", f'exec {sys.executable} "$@"')
    _write_examples(tmp_path)
    env = environment({"PATH": f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)})
    # First what writes a file that other commands read.
    for line in sorted(calls(path), key=lambda call: "shapes -o" not in call):
        call = line.replace("/tmp/", f"{tmp_path}/").replace("--minutes 60", "--minutes 0.05")
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", call],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert ended.returncode in (0, 1, 3), (call, ended.returncode, ended.stdout, ended.stderr)


def _write_program(path: Path, *lines: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)


def _write_examples(folder: Path) -> None:
    recorded = ROOT / "reports" / "examples" / "cpu"
    runs = ("reports/latest", "reports/recommended", "reports/20260101-rx5600", "last", "baseline", "now")
    for name in (*runs, "OLD", "NEW", "fleet/a", "fleet/b", "fleet/c", "output/a"):
        shutil.copytree(recorded, folder / name)
    shutil.copy(recorded / "results.json", folder)
    (folder / "log.txt").write_text("RuntimeError: HIP error: invalid device function\n")
    (folder / "machine.json").write_text('{"gpu": "RX 5700 XT"}')
    program = "import torch\ntorch.nn.Conv2d(3, 4, 3)(torch.ones(1, 3, 8, 8))\n"
    for name in ("train.py", "my/trainer.py", "examples/train_tiny.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(program)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_documented_shell_completes_a_command(shell: str) -> None:
    assert f"{shell}_source" in (ROOT / "docs" / "command-line.md").read_text("utf-8")
    program = "import sys; sys.argv = ['rocmprobe']; from rocmprobe.__main__ import main; main()"
    words = {"COMP_WORDS": "rocmprobe det", "COMP_CWORD": "det" if shell == "fish" else "1"}
    env = environment({**words, "_ROCMPROBE_COMPLETE": f"{shell}_complete"})
    ended = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert "detect" in ended.stdout


def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_parts_and_schema_are_current() -> None:
    # To update them: python docs/generate.py
    made = generate()
    texts = [page.read_text("utf-8") for page in made.PAGES]
    assert texts == [made.document(page) for page in made.PAGES]
    assert made.SCHEMA.read_text("utf-8") == made.results_schema()

    # Every part has a place, in a committed page or in the catalogue.
    texts.append(made.CATALOGUE.read_text("utf-8"))
    assert sorted(re.findall(r"<!-- generated: (\w+) -->", "".join(texts))) == sorted(made.PARTS)


def test_the_catalogue_of_the_site_has_every_setting_and_cause() -> None:
    made = generate()
    assert "<!-- generated: causes -->\n<!-- end of generated -->" in made.CATALOGUE.read_text("utf-8")
    catalogue = made.document(made.CATALOGUE)
    for setting, _, _ in all_settings():
        assert f"| {setting.name} |" in catalogue
    for cause in causes():
        assert f"\n#### {cause.name}\n" in catalogue


def symptoms() -> list[tuple[str, str]]:
    """Return each log in the page on troubleshooting with the first cause named after it."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    blocks = re.finditer(r"^```text\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    likely = re.compile(r"^Likely: .*?\(catalogue\.md#([\w-]+)\)", flags=re.MULTILINE)
    return [(block[1], likely.findall(text, block.end())[0]) for block in blocks]


def test_explain_names_the_likely_cause_of_a_symptom_or_none() -> None:
    named = []
    for log, cause in symptoms():
        read = of_text(log)
        facts = merge_and_derive(facts_of({"gpu": "RX 5600 XT"}), facts_in(read))
        found = explain(read, facts).cause or diagnose(read.lines, facts).symptom
        assert found in ("", cause), log
        named += [found] if found else []
    assert len(named) >= 20


def test_every_exit_code_is_in_its_table() -> None:
    text = (
        (ROOT / "docs" / "results.md").read_text("utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    )
    rows = {int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert rows == {value for value in vars(exit_codes).values() if isinstance(value, int)}


def test_files_of_the_project_name_one_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == __version__
    released = re.findall(
        r"^## \[(\d\S*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert released[0] == (__version__, citation["date-released"])


def test_hooks_run_the_linters_of_ci() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    lines = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert [each["entry"] for each in hooks] == lines[-4:]
    pins = (ROOT / "constraints.txt").read_text("utf-8")
    assert re.search(r"^ruff==", pins, re.MULTILINE)
    assert re.search(r"^mypy==", pins, re.MULTILINE)


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.stem)
def test_workflow_and_issue_forms_follow_the_schemas_of_github(path: Path) -> None:
    check = shutil.which("check-jsonschema")
    if check is None:
        pytest.skip("check-jsonschema is not installed")
    schema = "workflows" if path.parent.name == "workflows" else "issue-forms"
    schema = "issue-config" if path.stem == "config" else schema
    subprocess.run([check, "--builtin-schema", f"vendor.github-{schema}", str(path)], check=True)


def test_issue_forms_about_results_require_the_report_and_the_issue_text() -> None:
    for name in ("wrong-result", "hardware-report"):
        form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text("utf-8"))
        required = {
            each["id"] for each in form["body"] if each.get("validations", {}).get("required") is True
        }
        assert {"report", "issue-text"} <= required
