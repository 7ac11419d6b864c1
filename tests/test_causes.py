"""The vocabulary of causes: whole, consistent, and naming nothing that does not exist."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocmprobe import cli
from rocmprobe.checks import CHECKS
from rocmprobe.cli.base import COMMANDS
from rocmprobe.explain.conditions import CONDITIONS
from rocmprobe.explain.signatures import signatures
from rocmprobe.knowledge import causes, gpus, variables
from rocmprobe.knowledge.installation import Place
from rocmprobe.knowledge.settings import all_settings

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"
VARIABLE = re.compile(
    r"(?<![A-Z_])(?:MIOPEN|HSA|HIP|ROCR|ROCBLAS|AMD|GPU|ROC|PYTORCH|TORCH|HIPBLASLT|LD)_[A-Z0-9_]+"
)
EVERY = causes.causes()
NAMES = [each.name for each in EVERY]
#: Of no report in the corpus: met when the libraries ran on an emulated card, in later threads, or by checks
#: that came later.
MET_SINCE = {
    "jit-compiler-missing", "miopen-kernel-source-missing", "llvm-library-clash", "integrated-gpu-first",
    "attention-backend-missing", "triton-writes-nothing", "compiled-code-wrong", "gpu-hidden",
    "rocm-versions-mixed", "runtime-library-missing", "wsl-adapter-mismatch", "multi-gpu-transfer",
    "cuda-only-extension", "triton-compile-failure", "python-package-conflict", "outside", "installer-failed",
}  # fmt: skip
#: PyTorch calls MIOpen, so its own misuse has no cause.
NOT_OURS = {"api-misuse"}


def texts(cause):
    remedies = [text for each in cause.remedy for text in (each.does, *map("`{}`".format, each.commands))]
    return [cause.explanation, cause.verify, cause.confirm, *remedies]


ALL_TEXTS = [text for each in EVERY for text in texts(each)]
WORDS = CONDITIONS | {row.name for row in signatures()} | {row.gfx for row in gpus.all_targets()}


def test_it_is_the_vocabulary_of_the_corpus():
    if not CORPUS.exists():
        pytest.skip("no ../shared/corpus here")
    text = (CORPUS / "vocabulary.md").read_text("utf-8")
    section = text[text.index("## cause") : text.index("## Look-alikes")]
    heads = re.findall(r"^\* ([a-z0-9-]+(?:, [a-z0-9-]+)*)", section, re.M)
    listed = {name for head in heads for name in head.split(", ")}
    used = {json.loads(line)["cause"] for line in (CORPUS / "train.jsonl").read_text("utf-8").splitlines()}
    assert len(listed) > 40
    assert (listed | used) - NOT_OURS <= set(NAMES)
    assert {name for name in NAMES if name not in section} == MET_SINCE


class TestEachCause:
    @pytest.mark.parametrize("each", EVERY)
    def test_says_everything_in_whole_sentences(self, each):
        for text in (
            each.explanation,
            each.verify,
            each.confirm,
            each.sentence,
            *(r.does for r in each.remedy),
        ):
            assert len(text) > 18, text
            assert text[-1] in ".?:)`", text
            assert " ".join(text.split()) == text
            assert text.count("`") % 2 == 0, text
        assert len(each.explanation.split()) >= 25

    @pytest.mark.parametrize("each", EVERY)
    def test_has_links(self, each):
        assert each.links
        for link in each.links:
            assert re.fullmatch(r"https://[a-z0-9.-]+\.[a-z]+/[^\s\"']*", link), link
        assert len(set(each.links)) == len(each.links)

    @pytest.mark.parametrize("each", EVERY)
    def test_has_remedies_that_can_be_reached(self, each):
        *special, last = each.remedy
        assert last.when == ()
        assert all(row.when for row in special)
        assert {word.removeprefix("not-") for row in special for word in row.when} <= WORDS
        for row in special:
            holding = {word for word in row.when if not word.startswith("not-")}
            assert next(other for other in each.remedy if causes.all_hold(other.when, holding)) == row

    @pytest.mark.parametrize("each", EVERY)
    def test_has_a_remedy_on_every_system(self, each):
        for system in ("linux", "wsl", "windows"):
            for gfx in ("gfx1010", "gfx1100", "gfx803"):
                step = causes.step_for(each.name, {system, "torch"}, Place((gfx,), system=system))
                assert "{" not in step.does + "".join(step.commands).replace("${", ""), step
                assert len(step.does) > 15


class TestNothingIsInvented:
    def test_variables_are_in_the_catalogue(self):
        known = [row.name for row in variables.variables()]
        prefixes = ("HSA_STATUS_", *(name[:-1] for name in known if name.endswith("*")))
        named = {name for text in ALL_TEXTS for name in VARIABLE.findall(text)}
        assert "HSA_OVERRIDE_GFX_VERSION" in named
        whole = {name for name in named if not name.endswith("_") and not name.startswith(prefixes)}
        assert sorted(whole - set(known)) == []

    def test_settings_checks_and_commands_exist(self):
        known = {setting.name for setting, *_ in all_settings()}
        commands = set()
        for text in ALL_TEXTS:
            for names in re.findall(r"--settings? ([a-z0-9,.+-]+)", text):
                assert set(names.split(",")) <= known, names
            for name in re.findall(r"--only ([a-z0-9-]+)", text):
                assert name in CHECKS, name
            commands |= set(re.findall(r"`rocmprobe ([a-z]+)", text))
        assert commands - {"explain"} <= set(COMMANDS)
        rows = [row for each in EVERY for row in each.remedy] + list(causes.tests())
        assert {row.setting for row in rows if row.setting} <= known

    def test_tests_are_for_conditions_and_say_what_results_mean(self):
        for row in causes.tests():
            assert {word.removeprefix("not-") for word in row.when} <= WORDS
            assert bool(row.works) != bool(row.shows)
            assert len(row.works + row.shows) <= 73
            assert bool(row.commands) != bool(row.setting)


def test_no_command_has_the_user_s_shell_expand_what_only_root_may_read():
    commands = [command for text in ALL_TEXTS for command in re.findall(r"`(sudo [^`]*)`", text)]
    assert [each for each in commands if "*" in each and not each.startswith("sudo sh -c '")] == []


def test_list_causes_tells_each_and_what_would_confirm_it():
    result = CliRunner().invoke(cli.main, ["list", "causes"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    for name in NAMES:
        assert name in result.output
    assert "roc-obj-ls" in result.output
