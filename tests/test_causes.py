"""The vocabulary of causes: whole, consistent, and naming nothing that does not exist."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocmprobe import causes, cli, variables
from rocmprobe.cases import CHECKS
from rocmprobe.settings import all_settings

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"
VARIABLE = re.compile(
    r"(?<![A-Z_])(?:MIOPEN|HSA|HIP|ROCR|ROCBLAS|AMD|GPU|ROC|PYTORCH|TORCH|HIPBLASLT|LD)_[A-Z0-9_]+"
)
EVERY = causes.causes()
NAMES = [each.name for each in EVERY]


def texts(cause):
    return [cause.explanation, cause.verify, cause.confirm, *(each.text for each in cause.advice)]


ALL_TEXTS = [text for each in EVERY for text in texts(each)] + list(causes.decisions().values())


def test_it_is_the_vocabulary_of_the_corpus():
    if not CORPUS.exists():
        pytest.skip("no ../shared/corpus here")
    text = (CORPUS / "vocabulary.md").read_text("utf-8")
    section = text[text.index("## cause") : text.index("## Look-alikes")]
    heads = re.findall(r"^\* ([a-z0-9-]+(?:, [a-z0-9-]+)*)", section, re.M)
    listed = {name for head in heads for name in head.split(", ")}
    used = {json.loads(line)["cause"] for line in (CORPUS / "train.jsonl").read_text("utf-8").splitlines()}
    assert len(listed) > 40
    assert listed | used <= set(NAMES)
    assert [name for name in NAMES if name not in section] == []


@pytest.mark.parametrize("each", EVERY, ids=NAMES)
class TestEachCause:
    def test_says_everything_in_whole_sentences(self, each):
        for text in (*texts(each), each.sentence):
            assert len(text) > 20, text
            assert text[-1] in ".?:)`", text
            assert " ".join(text.split()) == text
            assert text.count("`") % 2 == 0, text
        assert len(each.explanation.split()) >= 25

    def test_has_links(self, each):
        assert each.links
        for link in each.links:
            assert re.fullmatch(r"https://[a-z0-9.-]+\.[a-z]+/[^\s\"']*", link), link
        assert len(set(each.links)) == len(each.links)

    def test_has_advice_that_can_be_reached(self, each):
        *special, last = each.advice
        assert last.when == ()
        assert all(advice.when for advice in special)
        words = {word.removeprefix("not-") for advice in special for word in advice.when}
        assert words <= causes.SITUATIONS
        for advice in special:
            positive = frozenset(word for word in advice.when if not word.startswith("not-"))
            assert causes.advice_for(each.name, positive) == advice.text, advice.when


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
            for names in re.findall(r"--settings ([a-z0-9,.+-]+)", text):
                assert set(names.split(",")) <= known, names
            for name in re.findall(r"--only ([a-z0-9-]+)", text):
                assert name in CHECKS, name
            commands |= set(re.findall(r"`rocmprobe ([a-z]+)", text))
        assert commands - {"explain"} <= set(cli.main.commands)

    def test_wheels_come_from_public_indexes(self):
        hosts = {host for text in ALL_TEXTS for host in re.findall(r"index-url https://([^/\s]+)/", text)}
        assert hosts == {"download.pytorch.org", "rocm.nightlies.amd.com"}


class TestAdvice:
    def test_it_depends_on_chip_and_torch(self):
        old = causes.advice_for("override-isa-mismatch", frozenset({"rdna1", "override-lacks", "torch-1"}))
        new = causes.advice_for("override-isa-mismatch", frozenset({"rdna1", "override-lacks", "torch-2"}))
        assert (
            "torch==1.13.1+rocm5.2' 'numpy<2' --extra-index-url https://download.pytorch.org/whl/rocm5.2"
            in new
        )
        assert old != new
        assert "10.3.0" in causes.advice_for("arch-not-in-wheel", frozenset({"rdna2", "no-override"}))
        assert "unset" in causes.advice_for("override-isa-mismatch", frozenset({"cdna", "override"}))

    def test_a_denied_word_holds_where_the_word_does_not(self):
        without = causes.advice_for("rocblas-missing-arch", frozenset({"rdna2"}))
        lent = causes.advice_for("rocblas-missing-arch", frozenset({"rdna2", "override"}))
        assert "export HSA_OVERRIDE_GFX_VERSION=10.3.0" in without
        assert without != lent

    def test_without_a_situation_there_is_always_one(self):
        assert all(causes.advice_for(name, frozenset()) for name in NAMES)


class TestQuestions:
    def test_pairs_are_of_the_vocabulary_and_stand_once(self):
        pairs = list(causes.decisions())
        assert all(len(pair) == 2 and pair <= set(NAMES) for pair in pairs)
        assert len(pairs) == len(causes._tables()["decide"])

    def test_the_order_does_not_matter_and_a_stranger_is_confirmed(self):
        ask = causes.question("kfd-permission", "kernel-driver-mismatch")
        assert ask == causes.question("kernel-driver-mismatch", "kfd-permission")
        assert "/dev/kfd" in ask
        assert (
            causes.question("thermal-throttling", "kfd-missing") == causes.cause("thermal-throttling").confirm
        )

    @pytest.mark.parametrize(
        "pair",
        [
            ("override-isa-mismatch", "hw-power-or-fault"),
            ("override-isa-mismatch", "kernel-driver-too-old"),
            ("workspace-too-small", "benign-warning"),
            ("comgr-target-id-mismatch", "benign-warning"),
            ("miopen-db-unusable", "miopen-no-solver"),
            ("arch-not-in-wheel", "library-path"),
            ("arch-not-in-wheel", "override-not-effective"),
            ("user-index-error", "gpu-hang-reset"),
            ("vram-oom", "gpu-hang-reset"),
        ],
    )
    def test_look_alikes_have_one(self, pair):
        assert frozenset(pair) in causes.decisions()


def test_list_causes_tells_each_and_what_decides():
    result = CliRunner().invoke(cli.main, ["list", "causes"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    for name in NAMES:
        assert name in result.output
    assert "roc-obj-ls" in result.output
