"""Wrong usage: the right exit code and one clear line, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import sample
from runs import CHECKOUT, cli, machine_file

from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import SCHEMA_VERSION, Machine, Results
from rocmprobe.model.results_file import write_results

RESULTS = Results(
    SCHEMA_VERSION, "0", "2026-01-01T00:00:00Z", None, True, None, {}, Machine(), (), (), (), ()
)
RDNA1 = "rdna1-rocm52-conv-dead"
CARD = ("install", "--fact", "gpu=RX 5700")
Make = Callable[[Path], list[object]]


def written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def results(folder: Path, **changes: object) -> Path:
    path = folder / "results.json"
    write_results(RESULTS, path)
    return written(path, json.dumps({**json.loads(path.read_text()), **changes}))


def sampled(folder: Path) -> Path:
    write_results(sample.rdna1(), folder / "results.json")
    return folder / "results.json"


def explain(folder: Path, *options: object, facts: str = "") -> list[object]:
    """Return the command that explains a log, with a file of ``facts`` if there are any."""
    given = ["--facts", written(folder / "facts.json", facts)] if facts else []
    return ["explain", written(folder / "log.txt", "hello"), *given, *options]


def shapes(folder: Path) -> Path:
    problem = parse_problem("conv1d-fp32-n1-c1-i9-k1-f3").as_json()
    return written(folder / "shapes.json", json.dumps({"schema_version": 1, "problems": [problem]}))


def broken_machine(folder: Path) -> Path:
    return machine_file(folder / "machine.toml", {"library": "miopen", "effect": "raise", "colour": "red"})


def used_folder(folder: Path) -> Path:
    written(folder / "journal.jsonl", '{"record": "run"}\n')
    return folder


WRONG: dict[str, tuple[int, str, Make]] = {
    "device word": (2, "--device 'gpu'", lambda at: ["run", "--device", "gpu"]),
    "program": (2, "did you mean `rocmprobe exec -- python train.py --epochs 3`?", lambda at: [
        "run", "train.py", "--epochs", "3"]),
    "argument": (2, "'no-such-word'; arguments for pytest follow --", lambda at: [
        "run", "--device", "cpu", "no-such-word"]),
    "absent device": (3, "--device cuda:7", lambda at: ["run", "--device", "cuda:7"]),
    "setting": (2, "no setting 'warp'", lambda at: ["run", "--device", "cpu", "--settings", "warp"]),
    "problem": (2, "'conv9d' is not a kind", lambda at: ["run", "--problem", "conv9d-fp32"]),
    "no shapes": (2, "cannot be read", lambda at: ["run", "--shapes", at / "none.json"]),
    "shapes of nothing": (2, "contains no problem", lambda at: ["run", "--shapes", written(
        at / "shapes.json", '{"schema_version": 1, "problems": []}')]),
    "shapes and a problem": (2, "leave one of them out", lambda at: [
        "run", "--shapes", shapes(at), "--problem", "conv1d-fp32-n1-c1-i9-k1-f3"]),
    "machine": (2, "no machine 'vega'", lambda at: ["run", "--simulate", "vega"]),
    "machine file": (2, "none.toml", lambda at: ["run", "--simulate", at / "none.toml"]),
    "field of a machine": (2, "colour", lambda at: ["run", "--simulate", broken_machine(at)]),
    "used folder": (2, "already has a run",
                    lambda at: ["run", "--device", "cpu", "--out", used_folder(at)]),
    "file in the way": (2, "cannot be written",
                        lambda at: ["run", "--device", "cpu", "--out", written(at / "file", "") / "out"]),
    "folder of the kernel": (2, "cannot be written",
                             lambda at: ["run", "--device", "cpu", "--out", "/proc/run"]),
    "nothing left": (2, "no check is selected",
                     lambda at: ["run", "--device", "cpu", "--only", "no-such/*", "--out", at / "out"]),
    "check": (2, "--only: 'conv' is neither a check", lambda at: ["run", "--only", "copy", "--only", "conv"]),
    "check left out": (2, "--skip: 'conv' is neither a check", lambda at: ["run", "--skip", "conv"]),
    "resume of nothing": (2, "name the folder of a run", lambda at: ["run", "--resume", at]),
    "report of nothing": (2, "cannot be read", lambda at: ["report", at / "none.json"]),
    "report of a broken file": (2, "not JSON", lambda at: ["report", written(at / "results.json", "{")]),
    "report of another version": (2, "schema_version is 9",
                                  lambda at: ["report", results(at, schema_version=9)]),
    "the full issue for a page": (2, "--format issue", lambda at: ["report", results(at), "--full"]),
    "report of a folder": (2, "name the folder of a run", lambda at: ["report", at]),
    "report to nowhere": (2, "name another file",
                          lambda at: ["report", results(at), "-o", at / "none" / "report.html"]),
    "env of nothing": (2, "cannot be read", lambda at: ["env", at / "none.json"]),
    "env of a damaged file": (2, "outcomes", lambda at: ["env", results(at, outcomes=7)]),
    "env of a foreign file": (2, "not a results file", lambda at: ["env", written(at / "r.json", "[]")]),
    "verify of nothing": (2, "recommend no configuration", lambda at: ["run", "--verify", results(at)]),
    "baseline of nothing": (2, "cannot be read", lambda at: ["run", "--baseline", at / "none.json"]),
    "baseline and verify": (2, "leave out --baseline", lambda at: [
        "run", "--baseline", results(at), "--verify", results(at)]),
    "resume and verify": (2, "--verify repeats the checks in the given results", lambda at: [
        "run", "--resume", at, "--verify", results(at)]),
    "what verify knows better": (2, "leave out --device, --level, --settings", lambda at: [
        "run", "--settings", "all", "--level", "quick", "--device", "cuda:7", "--verify", results(at)]),
    "baseline of a resumed run": (2, "a resumed run keeps its baseline", lambda at: [
        "run", "--resume", at, "--baseline", results(at)]),
    "minutes without a soak": (2, "--minutes: is the duration of the check soak; add --only soak",
                               lambda at: ["run", "--minutes", 5]),
    "minutes of other checks": (2, "add --only soak, or --level long", lambda at: [
        "run", "--minutes", 5, "--level", "standard", "--only", "gemm"]),
    "minutes and verify": (2, "leave out --minutes", lambda at: ["run", "--minutes", 5, "--verify", "."]),
    "check of nothing": (2, "none.json: cannot be read", lambda at: ["check", at / "none.json"]),
    "check by simulated results": (2, f"these results are from the simulated machine {RDNA1}; add --simulate",
                                   lambda at: ["check", CHECKOUT / "reports" / "examples" / RDNA1]),
    "setting of a check": (2, "--setting: onednn has no setting 'warp'", lambda at: [
        "check", "--device", "cpu", "--setting", "warp"]),
    "device of a check": (2, "--device 'gpu': unknown", lambda at: ["check", "--device", "gpu"]),
    "machine of a check": (2, "no machine 'vega'", lambda at: ["check", "--simulate", "vega"]),
    "repro of nothing": (2, "none.json", lambda at: ["repro", at / "none.json", "x"]),
    "repro of several": (2, "name one:", lambda at: ["repro", sampled(at), "gemm-only/convolution"]),
    "repro of no case": (2, "no outcome matches", lambda at: ["repro", sampled(at), "no such case"]),
    "repro of the bypass": (2, "needs rocmprobe", lambda at: [
        "repro", sampled(at), f"bypass/convolution/{sample.PROBLEMS[0].text}/fwd"]),
    "repro of a time": (2, "no stand-alone script", lambda at: [
        "repro", sampled(at), f"vendor-off/throughput/{sample.PROBLEMS[0].text}"]),
    "install: missing facts": (2, "none.json: cannot be read", lambda at: [
        "install", "--facts", "none.json"]),
    "install: no fact": (2, "'gppu' is not a fact", lambda at: ["install", "--fact", "gppu=RX 5700"]),
    "install: unknown stack": (2, "no stack 'rocm9'; there are official-", lambda at: [
        *CARD, "--stack", "rocm9"]),
    "install: stack of another chip": (2, "is not for Linux; suitable stacks: ", lambda at: [
        *CARD, "--stack", "ml-gfx906"]),
    "install: two machines": (2, "leave out --facts and --fact", lambda at: [*CARD, "--simulate", "bn-dead"]),
    "install: unknown machine": (2, "no machine 'x'", lambda at: ["install", "--simulate", "x"]),
    "install: no fixed version": (2, "the versions of amd-nightly are not known before it is installed",
                                  lambda at: [*CARD, "--stack", "amd-nightly", "--constraints", "c.txt"]),
    "install: nowhere to write": (2, "no such folder/c.txt: No such file or directory; name another file",
                                  lambda at: [*CARD, "--constraints", "no such folder/c.txt"]),
    "explain: missing file": (2, "cannot be read", lambda at: ["explain", "none.txt"]),
    "explain: impossible name": (2, "cannot be read", lambda at: ["explain", "\0"]),
    "explain: name too long": (2, "cannot be read", lambda at: ["explain", "x" * 5000]),
    "compare: name too long": (2, "File name too long", lambda at: ["compare", "x" * 5000, "y"]),
    "explain: folder of a run": (2, "schema_version is 9", lambda at: [
        "explain", results(at, schema_version=9).parent]),
    "explain: damaged results": (2, "schema_version is 9", lambda at: [
        "explain", results(at, schema_version=9)]),
    "explain: missing facts": (2, "none.json: cannot be read", lambda at: explain(
        at, "--facts", "none.json")),
    "explain: facts in prose": (2, "facts.json: not JSON", lambda at: explain(at, facts="gpu: RX 5700")),
    "explain: facts in a list": (2, "facts.json: not a JSON object", lambda at: explain(at, facts="[]")),
    "explain: deep facts": (2, "facts.json: not JSON", lambda at: explain(at, facts="[" * 99999)),
    "explain: unknown fact": (2, "facts.json: 'gppu' is not a fact", lambda at: explain(
        at, facts='{"gppu": 1}')),
    "explain: broken detection": (2, "facts.json: Machine", lambda at: explain(at, facts='{"gpus": [1]}')),
    "explain: fact without value": (2, "write NAME=VALUE", lambda at: explain(at, "--fact", "torch")),
    "explain: no fact": (2, "'log' is not a fact", lambda at: explain(at, "--fact", "log=x")),
    "explain: all variables": (2, "'env' is not a fact", lambda at: explain(at, "--fact", "env={}")),
    "explain: a name for a target": (2, "--fact: true_gfx is 'navi10'", lambda at: explain(
        at, "--fact", "true_gfx=navi10")),
    "explain: unknown exit": (2, "exit is 'boom'", lambda at: explain(at, "--fact", "exit=boom")),
    "unknown option": (2, "--colour", lambda at: ["run", "--colour"]),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_wrong_usage_is_one_clear_line(tmp_path: Path, what: str) -> None:
    code, text, make = WRONG[what]
    done = cli(*make(tmp_path), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert text in lines[-1]
    if what != "unknown option":
        assert lines == [lines[-1]]
        assert lines[0].startswith("rocmprobe: ")
