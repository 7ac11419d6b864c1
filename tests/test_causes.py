"""The vocabulary of causes: whole, consistent, and naming nothing that does not exist."""

import json
import re
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner
from rows import every_row

from rocmprobe import cli
from rocmprobe.checks import CHECKS
from rocmprobe.cli.base import COMMANDS
from rocmprobe.explain.explain import explain
from rocmprobe.explain.log_facts import Facts
from rocmprobe.explain.situations import situations
from rocmprobe.knowledge import causes, gpus, variables
from rocmprobe.knowledge.settings import all_settings
from rocmprobe.knowledge.stacks import Installed, known_to_break
from rocmprobe.text.log import of_text
from rocmprobe.text.tables import table

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
    "attention-backend-missing", "triton-writes-nothing", "compiled-code-wrong",
    "rocm-versions-mixed", "runtime-library-missing", "wsl-adapter-mismatch", "multi-gpu-transfer",
    "cuda-only-extension", "triton-compile-failure", "python-package-conflict", "outside",
}  # fmt: skip


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
    assert {name for name in NAMES if name not in section} == MET_SINCE


class TestEachCause:
    @every_row("each", EVERY)
    def test_says_everything_in_whole_sentences(self, each):
        for text in (*texts(each), each.sentence):
            assert len(text) > 20, text
            assert text[-1] in ".?:)`", text
            assert " ".join(text.split()) == text
            assert text.count("`") % 2 == 0, text
        assert len(each.explanation.split()) >= 25

    @every_row("each", EVERY)
    def test_has_links(self, each):
        assert each.links
        for link in each.links:
            assert re.fullmatch(r"https://[a-z0-9.-]+\.[a-z]+/[^\s\"']*", link), link
        assert len(set(each.links)) == len(each.links)

    @every_row("each", EVERY)
    def test_has_advice_that_can_be_reached(self, each):
        *special, last = each.advice
        assert last.when == ()
        assert all(advice.when for advice in special)
        words = {word.removeprefix("not-") for advice in special for word in advice.when}
        assert words <= causes.SITUATIONS | causes.CHIP_WORDS
        for advice in special:
            positive = frozenset(word for word in advice.when if not word.startswith("not-"))
            assert causes.advice_for(each.name, positive) == advice.given_to(None), advice.when


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
        assert commands - {"explain"} <= set(COMMANDS)

    def test_wheels_come_from_public_indexes(self):
        hosts = {host for text in ALL_TEXTS for host in re.findall(r"https://([^/\s]+)/(?:whl|rocm/)", text)}
        assert hosts == {"download.pytorch.org"}, "the table of stacks alone names AMD's index"

    @every_row(
        ("gfx", "index"),
        [
            ("gfx1010", "https://stable.repo.amd.com/rocm/whl-next/"),
            ("gfx906", "https://nightly.repo.amd.com/rocm/whl-next/"),
            (None, "https://stable.repo.amd.com/rocm/whl-next/"),
        ],
    )
    def test_the_index_of_amd_is_one_that_has_the_chip(self, gfx, index):
        words = frozenset({"windows"})
        told = causes.advice_for("arch-not-in-wheel", words, gfx)
        assert f'pip install --index-url {index} "torch[device-{gfx or "gfxNNNN"}]"' in told


class TestAdvice:
    def test_it_depends_on_the_machine(self):
        # It depends on chip and torch.
        old = causes.advice_for("override-isa-mismatch", frozenset({"rdna1", "override-lacks", "torch-1"}))
        new = causes.advice_for("override-isa-mismatch", frozenset({"rdna1", "override-lacks", "torch-2"}))
        assert (
            "torch==1.13.1+rocm5.2' 'numpy<2' --extra-index-url https://download.pytorch.org/whl/rocm5.2"
            in new
        )
        assert old != new
        assert "10.3.0" in causes.advice_for("arch-not-in-wheel", frozenset({"rdna2", "no-override"}))
        assert "unset" in causes.advice_for("override-isa-mismatch", frozenset({"cdna", "override"}))

        # Missing headers on Windows need what no newer build brings.
        told = causes.advice_for("jit-missing-host-headers", frozenset({"windows"}))
        assert "Visual Studio Build Tools" in told
        assert "torch.backends.cudnn.enabled = False" in told
        assert "newer build" not in told

        # A denied word holds where the word does not.
        without = causes.advice_for("rocblas-missing-arch", frozenset({"rdna2"}))
        lent = causes.advice_for("rocblas-missing-arch", frozenset({"rdna2", "override"}))
        assert "export HSA_OVERRIDE_GFX_VERSION=10.3.0" in without
        assert without != lent

        # Without a situation there is always one.
        assert all(causes.advice_for(name, frozenset()) for name in NAMES)


#: What else may be known besides the chip.
ELSEWHERE = [set(), {"torch-1"}, {"torch-2"}, {"rocm-5"}, {"rocm-6"}, {"windows"}, {"llama"}, {"tensorflow"},
             {"container"}, {"wheel-holds"}, {"wheel-lacks"}, {"torch-2", "rocm-6"}]  # fmt: skip
OVERRIDES = ["", "9.0.0", "10.3.0", "11.0.0"]
#: The code that chips of a family are lent, where they have none.
LENT = {"RDNA1": ["gfx1030"], "RDNA2": ["gfx1030"], "RDNA3": ["gfx1100"], "Vega": ["gfx900"]}
#: A release of ROCm that a text sends to.
PRAISED = re.compile(r"(?:[Ii]nstall|[Tt]ake|[Nn]eeds?|Use|wheels up to)\b[^;:]*? ROCm (\d\.\d)")
CHIPS = [row.gfx for row in gpus.all_targets()]


def advice_on(gfx):
    """Every (cause, advice) that an owner of this chip can be given."""
    found = set()
    for override in OVERRIDES:
        env = {"HSA_OVERRIDE_GFX_VERSION": override} if override else {}
        effective = gpus.isa_of_override(override) or gfx
        words = situations(Facts(true_gfx=gfx, effective_gfx=effective, env=env), of_text(""))
        found |= {
            (name, causes.advice_for(name, words | more, gfx))
            for name in NAMES
            for more in ELSEWHERE
            if not (name == "override-isa-mismatch" and effective == gfx)
        }
    return sorted(found)


class TestAdviceForAChip:
    @every_row("gfx", CHIPS)
    def test_names_no_other_chip_to_build_or_install_for(self, gfx):
        row = gpus.target(gfx)
        for name, text in advice_on(gfx):
            for package in re.findall(r"torch\[device-(\w+)\]", text):
                assert package == gfx, (name, text)
                # Without AMD's wheels, a chip needs its own advice in causes.toml.
                assert row.amd_wheels, f"{name} advises AMD's wheels, which {gfx} lacks in gpus.toml: {text}"
            for target in re.findall(r"(?:PYTORCH_ROCM_ARCH|AMDGPU_TARGETS)=(\w+)", text):
                assert target == gfx, (name, text)
            assert "python-pytorch-rocm" not in text or gfx == "gfx1010", name
            assert not re.search(r"[{]|gfxNNNN", text), (name, text)

    @every_row("gfx", CHIPS)
    def test_sets_no_override_that_is_idle_or_of_another_family(self, gfx):
        lent = LENT.get(gpus.family(gfx), [])
        for name, text in advice_on(gfx):
            for value in re.findall(r"HSA_OVERRIDE_GFX_VERSION=([0-9.]+[0-9])", text):
                assert gpus.isa_of_override(value) in lent, (name, text)
                assert gpus.isa_of_override(value) != gfx, (name, text)

    @every_row("gfx", CHIPS)
    def test_offers_wheels_that_hold_its_code_and_do_not_break_it(self, gfx):
        """By gpus.toml and stacks.toml; with an override those of the chip that is lent its code."""
        for name, text in advice_on(gfx):
            given = re.search(r"HSA_OVERRIDE_GFX_VERSION=([0-9.]+[0-9])", text)
            lends = bool(given) or re.search(r"(?:[Ww]ith|keep) the override", text)
            runs = LENT.get(gpus.family(gfx), [gfx])[0] if lends and "unset HSA" not in text else gfx
            for torch, rocm in re.findall(r"(?:torch==([0-9.]+)\S*.*?)?whl/rocm(\d\.\d)", text):
                assert gpus.in_wheel(runs, torch or None, rocm) is not False, (name, text)
                for silicon in (gfx, runs):
                    assert not known_to_break(Installed(silicon, runs, rocm, torch or None)), (name, text)
            for rocm in re.findall(PRAISED, text):
                assert not known_to_break(Installed(gfx, runs, rocm)), (name, text)


@every_row("name", ["stacks.toml", "causes.toml"])
def test_commands_are_marked_as_code_as_a_whole(name):
    text = resources.files("rocmprobe").joinpath("data", name).read_text("utf-8")
    lines = (line for line in text.splitlines() if not line.startswith(("#", "title", "source", "commands")))
    told = re.sub(r'(?m)^  ".*$', "", "\n".join(lines))
    outside = re.sub("`[^`]*`", "", told)
    assert re.findall(r"pip install|--index-url|sudo \w+ -", outside) == []


def test_advice_names_the_chip_of_the_reader():
    # A chip that is not known gets a name to replace.
    text = causes.advice_for("arch-not-in-wheel", frozenset({"rdna1"}), "gfx101x")
    assert "torch[device-gfxNNNN]" in text
    assert text.endswith("`env -u HSA_OVERRIDE_GFX_VERSION rocminfo | grep gfx` shows.")

    # Explain tells the owner of an rx 5500 of his own chip.
    log = of_text("RuntimeError: HIP error: invalid device function")
    first = explain(log, Facts(true_gfx="gfx1012", torch="2.3.0+rocm6.0")).causes[0]
    assert first.cause == "arch-not-in-wheel"
    assert "torch[device-gfx1012]" in first.advice
    assert "gfx1010" not in first.advice


def test_a_malformed_override_keeps_the_runtime_from_starting_says_each():
    words = frozenset({"override", "override-invalid", "no-override"})
    said = {causes.advice_for(name, words) for name in ("override-not-effective", "hsa-init-failed")}
    assert len(said) == 1
    assert "the runtime does not start" in said.pop()


def test_no_command_has_the_user_s_shell_expand_what_only_root_may_read():
    commands = [command for text in ALL_TEXTS for command in re.findall(r"`(sudo [^`]*)`", text)]
    assert any("/sys/kernel/debug" in command for command in commands)
    assert [each for each in commands if "*" in each and not each.startswith("sudo sh -c '")] == []


class TestQuestions:
    def test_pairs_are_of_the_vocabulary_in_any_order(self):
        # Pairs are of the vocabulary and stand once.
        pairs = list(causes.decisions())
        assert all(len(pair) == 2 and pair <= set(NAMES) for pair in pairs)
        assert len(pairs) == len(table("causes")["decide"])

        # The order does not matter and a stranger is confirmed.
        ask = causes.deciding_check("kfd-permission", "kernel-driver-mismatch")
        assert ask == causes.deciding_check("kernel-driver-mismatch", "kfd-permission")
        assert "/dev/kfd" in ask
        assert (
            causes.deciding_check("thermal-throttling", "kfd-missing")
            == causes.cause("thermal-throttling").confirm
        )

    @every_row(
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
