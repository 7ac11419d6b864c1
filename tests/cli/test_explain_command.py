"""`rocmprobe explain`: what it reads, what it prints, and that no input breaks it."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sample
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runs import environment
from sample_logs import COLLECT_ENV, LINES
from tiers import examples

from rocmprobe.cli import main
from rocmprobe.judge.judgement import judge
from rocmprobe.judge.summary import summarize
from rocmprobe.model.results import Fact, Gpu, Machine, Results
from rocmprobe.model.results_file import write_results

FATAL = (
    "rocBLAS error: Cannot read /home/joe/env/lib/python3.8/site-packages/torch/lib/rocblas/library/"
    "TensileLibrary.dat: Illegal seek for GPU arch : gfx1031\nAborted (core dumped)\n"
)


def asked(*arguments: object, log: str | bytes | None = None) -> tuple[int, str]:
    """Exit code and output of the command, in this process."""
    done = CliRunner().invoke(main, ["explain", *map(str, arguments)], input=log)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def answer(*arguments: object, log: str | bytes | None = None) -> dict[str, Any]:
    code, output = asked("--json", *arguments, log=log)
    assert code == 0, output
    data: dict[str, Any] = json.loads(output)
    return data


def inert(output: str) -> bool:
    """Whether a terminal shows this and does nothing else."""
    return not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in output.replace("\n", ""))


def test_the_answer_as_json(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(COLLECT_ENV + FATAL)
    data = answer(path)
    assert list(data) == [
        "answer", "headline", "cause", "layer", "remedy", "verify", "why", "tests", "weighed", "facts",
        "note",
    ]  # fmt: skip
    assert (data["answer"], data["cause"], data["layer"]) == ("known", "rocblas-missing-arch", "rocblas")
    assert list(data["remedy"]) == ["does", "commands", "after", "works", "shows"]
    assert data["why"][0].startswith("line 11: rocBLAS error")
    assert data["facts"]["torch"] == "1.13.1+rocm5.2"
    assert data["facts"]["exit"] == "abort"
    assert answer("-", log=path.read_text()) == data == answer(log=path.read_text())


def test_what_else_was_weighed_only_on_request() -> None:
    log = "RuntimeError: HIP error: invalid device function\nRuntimeError: miopenStatusUnknownError\n"
    facts = ("--fact", "true_gfx=gfx1012", "--fact", "torch_targets=gfx1030,gfx1010")
    code, brief = asked(*facts, log=log)
    assert code == 0
    assert brief.startswith("No code for this chip in the program\nDo: ")
    assert "Facts:" not in brief
    assert "Facts: " in asked("-v", *facts, log=log)[1]


def test_the_machine_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(vendor=Fact("amd"), name=Fact("Radeon RX 5600 XT"), native_isa=Fact("gfx1010"))
    monkeypatch.setattr("rocmprobe.detect.detect", lambda root: Machine(gpus=(gpu,)))
    log = "RuntimeError: miopenStatusUnknownError\n"
    here = answer("--machine", "--fact", "torch=1.13.1+rocm5.2", log=log)["facts"]
    assert (here["true_gfx"], here["torch"]) == ("gfx1010", "1.13.1+rocm5.2")
    assert "true_gfx" not in answer(log=log)["facts"]


def test_what_is_not_amd_s_is_said_in_the_first_line() -> None:
    log = (
        'Traceback (most recent call last):\n  File "/v/site-packages/numpy/lib/x.py", line 3, in '
        "f\nKeyError: 3\n"
    )
    code, output = asked(log=log)
    assert code == 0
    assert output == "Not a failure of AMD's stack: KeyError in package numpy.\n"
    assert answer(log=log)["answer"] == "elsewhere"


def test_not_enough_evidence_is_an_answer() -> None:
    for log in ("", "\n\n", "hello\n"):
        data = answer(log=log)
        assert data["answer"] == "nothing"
        code, output = asked(log=log)
        assert code == 0
        assert output.strip()


def test_facts_from_a_file_and_options(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(json.dumps({
        "gpu": "Radeon RX 5700 XT", "torch": "2.0.0", "env": {"MIOPEN_FIND_MODE": "1"}, "log": "",
        "cause": "x", "exit": None,
    }))  # fmt: skip
    options = ("--facts", path, "--fact", "torch=2.0.1+rocm5.4.2", "--fact", "exit=segv")
    for override in ("HSA_OVERRIDE_GFX_VERSION=10.3.0", "env.HSA_OVERRIDE_GFX_VERSION=10.3.0"):
        assert answer(*options, "--fact", override, log="hello")["facts"] == {
            "gpu": "Radeon RX 5700 XT", "true_gfx": "gfx1010", "effective_gfx": "gfx1030", "rocm": "5.4.2",
            "torch": "2.0.1+rocm5.4.2", "exit": "segv",
            "env": {"MIOPEN_FIND_MODE": "1", "HSA_OVERRIDE_GFX_VERSION": "10.3.0"},
        }  # fmt: skip


def test_what_the_installed_torch_holds_rules_a_cause_out(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    told = {"native_isa": "gfx1010", "effective_isa": "gfx1010", "vendor": "amd"}
    gpu = {name: {"value": value, "source": ""} for name, value in told.items()}
    facts = {"torch.targets": {"value": ["gfx1010:xnack-"], "source": "libtorch_hip.so"}}
    path.write_text(json.dumps({"gpus": [gpu], "facts": facts, "variables": {}}))
    log = "RuntimeError: HIP error: invalid device function\n"
    of_detect = answer("--facts", path, log=log)
    by_hand = answer("--fact", "true_gfx=gfx1010", "--fact", "torch_targets=gfx900,gfx1010", log=log)
    for found in (of_detect, by_hand):
        assert found["answer"] == "located"
        assert (
            "not arch-not-in-wheel: the installed PyTorch has code for the chip that the runtime sees"
            in found["why"]
        )
    assert answer("--fact", "true_gfx=gfx1010", log=log)["cause"] == "arch-not-in-wheel"


def test_the_gpu_in_the_processor_is_the_first(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"

    def of_detect(card: int, integrated: int) -> dict[str, Any]:
        gpus = [
            {"native_isa": "gfx1036", "apu": True, "order": 0, "index": integrated},
            {"native_isa": "gfx1201", "apu": False, "order": 1, "index": card},
        ]
        told = [{name: {"value": value} for name, value in {**gpu, "vendor": "amd"}.items()} for gpu in gpus]
        path.write_text(json.dumps({"gpus": told, "facts": {}, "variables": {}}))
        return answer("--facts", path, log="RuntimeError: HIP error: invalid device function\n")

    first, second = of_detect(1, 0), of_detect(0, 1)
    assert first["facts"]["first_gpu"] == "processor"
    assert first["facts"]["true_gfx"] == "gfx1036"
    assert first["cause"] == "integrated-gpu-first"
    assert "the first GPU that programs see is the one in the processor, not the card" in first["why"]
    assert second["facts"]["first_gpu"] == "card"
    assert second["facts"]["true_gfx"] == "gfx1201"
    assert second["cause"] != "integrated-gpu-first"


def test_facts_from_detect(tmp_path: Path) -> None:
    path = tmp_path / "detected.json"
    path.write_text(json.dumps({
        "gpus": [{"vendor": {"value": "amd"}, "native_isa": {"value": "gfx1010", "source": "kfd"}}],
        "facts": {"torch.version": {"value": "1.13.1+rocm5.2", "source": ""}},
        "variables": {"HSA_OVERRIDE_GFX_VERSION": {"value": "10.3.0", "source": ""}}, "findings": [],
    }))  # fmt: skip
    assert answer("--facts", path, log="hello")["facts"] == {
        "true_gfx": "gfx1010", "effective_gfx": "gfx1030", "rocm": "5.2", "torch": "1.13.1+rocm5.2",
        "env": {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"},
    }  # fmt: skip


def of_a_run(folder: Path, results: Results | None = None) -> Path:
    write_results(results or sample.rdna1(), folder / "results.json")
    return folder / "results.json"


def test_the_results_of_a_run_give_its_own_findings_and_verdict(tmp_path: Path) -> None:
    results = judge(sample.rdna1())
    path = of_a_run(tmp_path, results)
    told = answer(path)
    assert [each["title"] for each in told["findings"]] == [each.title for each in results.findings]
    assert (told["headline"], told["verdict"]) == (
        summarize(results).headline,
        results.recommendation.sentence,
    )
    code, output = asked(tmp_path)
    shown = "".join(output.split())
    assert code == 0
    assert inert(output)
    for finding in results.findings:
        assert "".join(finding.title.split()) in shown
        assert "".join(finding.advice.split()) in shown
    assert "rocmprobeexec" in shown


def test_a_run_without_failures_is_no_log_with_messages(tmp_path: Path) -> None:
    healthy = sample.healthy_cpu()
    noisy = replace(healthy, trials=tuple(replace(each, log=FATAL) for each in healthy.trials))
    code, output = asked(of_a_run(tmp_path, noisy))
    assert code == 0
    assert "rocBLAS" not in output
    assert judge(healthy).recommendation.sentence.split(":")[0] in output


def test_the_results_of_a_run_on_standard_input(tmp_path: Path) -> None:
    path = of_a_run(tmp_path)
    assert answer("-", log=path.read_bytes()) == answer(log=path.read_bytes()) == answer(path)
    code, output = asked("-", log='{"schema_version": 9, "rocmprobe": "9"}')
    assert code == 2
    assert "standard input: schema_version is 9" in output


def test_a_log_of_json_lines_is_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = ({"schema_version": 1, "message": line} for line in FATAL.splitlines())
    path.write_text("\n".join(map(json.dumps, lines)))
    assert "TensileLibrary.dat" in answer(path)["why"][0]
    assert answer("-", log=path.read_text()) == answer(path)


def test_the_machine_of_a_run_as_facts(tmp_path: Path) -> None:
    facts = answer("--facts", of_a_run(tmp_path), log="hello")["facts"]
    assert (facts["true_gfx"], facts["effective_gfx"]) == ("gfx1010", "gfx1030")
    assert facts["env"]["HSA_OVERRIDE_GFX_VERSION"] == "10.3.0"


def test_a_line_too_long_to_be_looked_at_whole_is_told() -> None:
    told = answer(log=f"{'x' * 9_000}\nend\n")
    assert told["note"].endswith("1 line longer than 4,500 characters: the middle was ignored.")


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_is_printed_is_redacted_and_inert(form: tuple[str, ...]) -> None:
    log = FATAL.replace("Illegal", "[bold]\x1b[31m\x07\x1b]0;x\x07\u202e\x9bIllegal")
    code, clean = asked(*form, log=log)
    assert code == 0
    assert "TensileLibrary.dat" in "".join(clean.split())
    assert "joe" not in clean
    assert "joe" in asked(*form, "--no-redact", log=log)[1]
    assert "[bold]" in clean
    assert inert(clean)


LOGS = st.lists(
    st.one_of(st.binary(max_size=50), st.sampled_from((*map(str.encode, LINES), b"\n", b"\r", b"\x1b["))),
    max_size=12,
).map(b"".join)  # fmt: skip


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow])
@given(LOGS, st.lists(st.text(max_size=20).map("torch={}".format), max_size=2))
def test_no_log_breaks_it(log: bytes, facts: list[str]) -> None:
    options = [word for fact in facts for word in ("--fact", fact)]
    assert answer(*options, log=log)["answer"] in ("known", "located", "elsewhere", "nothing")
    code, output = asked(*options, log=log)
    assert code == 0
    assert inert(output)


def test_it_imports_neither_torch_nor_what_only_results_need(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(FATAL)
    program = (
        "import sys; from rocmprobe.cli import main; main(['explain', sys.argv[1]], standalone_mode=False)"
    )
    script = f"import atexit, sys; atexit.register(lambda: print('loaded', *sys.modules)); {program}"
    done = subprocess.run(
        [sys.executable, "-c", script, path], env=environment(), capture_output=True, text=True, check=True
    )
    loaded = done.stdout.rpartition("loaded ")[2].split()
    assert "rocmprobe.explain.explain" in loaded
    assert not {"torch", "jinja2", "pytest"} & set(loaded)
