"""Recordings of what rocmprobe prints and decides, to compare before and after a redesign.

Record with the Python of each version, then compare::

    python benchmarks/same_results.py record before
    python benchmarks/same_results.py compare before after --expected expected.txt

Each line of the file of expected differences is a regular expression, `` # ``, and a reason. The pattern is
searched in the printed difference, which begins with ``FILE: KEY:``. ``record --only PATTERN`` records the
entries whose name matches a shell pattern (repeatable); the runs that a command reads are recorded with it.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Optional

CHECKOUT = Path(__file__).resolve().parent.parent
#: The names are fixed, so that a machine that disappears is a difference.
MACHINES = [
    "attention-backend-missing", "bn-dead", "compile-abort", "compile-abort-bn-dead", "conv-hang",
    "db-read-only", "env-rejected", "every-size-minutes", "faults-all", "gemm-memory-fault",
    "healthy-gfx1100", "hipblaslt-no-kernels", "hot-weak-fan", "igemm-compile-failure", "inductor-wrong",
    "miopen-3.4.0-gfx1010", "miopen-3.5.1-gfx1010", "naive-fallback", "oom-at-batch",
    "rdna1-fp16-broken", "rdna1-rocm52-conv-dead", "rocblas-files-missing", "search-for-minutes",
    "stale-cache", "triton-writes-nothing", "wheel-without-arch", "winograd-wrong",
]  # fmt: skip
PLANTED = [
    "doubled-channel", "lost-term", "zeroed-row", "doubled-tile", "wrong-padding-edge",
    "swapped-dilation", "stale-buffer", "uncleared-result", "untouched-output", "unwritten-gaps",
    "half-accumulation", "reduced-precision", "random-element", "nan-lane", "bias-gradient",
    "transposed-weights", "mixed-up-layout",
]  # fmt: skip
SMALL = ["--problem", "conv2d-fp32-n1-c4-i8x8-k4-f3x3", "--problem", "conv2d-fp16-n1-c4-i8x8-k4-f3x3"]
# Long checks are left out, and measurements of speed and memory, because noise changes their results.
LONG = ["problem-matrix", "throughput", "memory"]
SHORT = [*SMALL, *(part for check in LONG for part in ("--skip", check))]
CHECKS = ["copy", "gemm", "convolution", "solver", "batch-norm", "lstm", "training-step"]
#: Checks that a machine needs in addition to CHECKS to show its fault.
ALSO = {
    "attention-backend-missing": ["attention", "attention-math", "attention-flash", "attention-efficient"],
    "hipblaslt-no-kernels": ["matmul", "int-matmul"],
    "inductor-wrong": ["triton", "inductor"],
    "triton-writes-nothing": ["triton", "inductor"],
    "every-size-minutes": ["changing-sizes", "start-up"],
    "search-for-minutes": ["start-up"],
}
PROBLEMS = {
    # Only sizes from batch 8 on fail.
    "oom-at-batch": ["--problem", "conv2d-fp32-n8-c4-i8x8-k4-f3x3"],
    "naive-fallback": ["--problem", "conv3d-fp32-n1-c2-i4x5x5-k2-f3x3x3"],
}


def machine_run(name: str) -> list[str]:
    """Return the options of a small run that shows the fault of this machine."""
    if name == "faults-all":  # Each of its 75 faults is tied to a separate problem.
        problems = [f"conv2d-fp32-n1-c{number}-i8x8-k4-f3x3" for number in range(1, 76)]
        only = ["--only", "*/convolution/*/fwd", "--settings", "default"]
        return ["--simulate", name, *(part for each in problems for part in ("--problem", each)), *only]
    checks = [part for check in [*CHECKS, *ALSO.get(name, [])] for part in ("--only", check)]
    return ["--simulate", name, *SMALL, *PROBLEMS.get(name, []), *checks]


RUNS = {f"run-{name}": machine_run(name) for name in MACHINES}
for bug in PLANTED:
    RUNS[f"run-planted-{bug}"] = f"--simulate planted-{bug} --only convolution --settings default".split()
RUNS["run-cpu"] = ["--device", "cpu", *SHORT]
RUNS["run-only"] = ["--device", "cpu", "--only", "gemm", "--skip", "*/float16"]
RUNS["run-interrupted"] = ["--device", "cpu", *SHORT]

# In commands $CORPUS is a folder with two logs, and $NAME is the folder of the run "run-NAME".
PRINTS = "import os; print(sorted(k for k in os.environ if k[:6] in ('MIOPEN', 'HSA_OV', 'ROCMPR')))"
COMMANDS = {
    "detect": "detect",
    "detect-json": "detect --json",
    "install-this": "install",
    "install-machine": "install --simulate bn-dead",
    "install-fact": "install --fact 'gpu=RX 5700 XT' --fact os=Linux",
    "install-json": "install --fact 'gpu=RX 5600 XT' --json",
    "explain-first": "explain $CORPUS/0",
    "explain-second": "explain $CORPUS/1 --json",
    "explain-results": "explain $bn-dead/results.json",
    **{f"env-{shell}": f"env $bn-dead/results.json --simulated --shell {shell}"
       for shell in ("sh", "fish", "powershell", "dotenv", "json")},
    "env-setting": "env $bn-dead/results.json --simulated --setting find-fast",
    "env-not-simulated": "env $bn-dead/results.json",
    "exec": f"exec --profile $bn-dead/results.json --simulated -- $PYTHON -c \"{PRINTS}\"",
    "exec-setting": f"exec --profile $cpu/results.json --setting bypass -- $PYTHON -c \"{PRINTS}\"",
    "exec-variables": "exec --profile $bn-dead/results.json --simulated --setting find-fast -- "
                      f"$PYTHON -c \"{PRINTS}\"",
    "exec-code": "exec --profile $cpu/results.json -- $PYTHON -c 'raise SystemExit(7)'",
    "compare": "compare $healthy-gfx1100 $bn-dead",
    "compare-json": "compare $healthy-gfx1100 $bn-dead --json",
    "compare-part": "compare $only $cpu",
    "compare-itself": "compare $cpu $cpu",
    "table-csv": "table $bn-dead $healthy-gfx1100 $cpu --simulated --format csv",
    "table-json": "table $bn-dead $healthy-gfx1100 $cpu --simulated --format json",
    "table-html": "table $bn-dead $healthy-gfx1100 $cpu --simulated -o table.html",
    "submit": "submit $cpu --yes --partial -o cpu.zip",
    "submit-simulated": "submit $bn-dead --yes --partial -o bn-dead.zip",
    "submit-check": "submit --check cpu.zip --into bundles",
    "submit-check-bad": "submit --check $CORPUS/0",
    "table-site": "table bundles --site site",
    "repro-batch-norm": "repro $bn-dead/results.json default/batch-norm/float32",
    "repro-convolution": "repro $bn-dead/results.json "
                         "torch/default/convolution/conv2d-fp32-n1-c4-i8x8-k4-f3x3/bwd-data",
    "repro-ambiguous": "repro $bn-dead/results.json batch-norm",
    **{f"report-{form}": f"report $bn-dead/results.json --format {form} -o report.{form}"
       for form in ("html", "md", "json", "junit")},
    "report-terminal": "report $cpu/results.json --format md",
    **{f"report-issue-{tracker}": f"report $bn-dead/results.json --format issue --for {tracker}"
       for tracker in ("miopen", "rocm", "pytorch", "ultralytics")},
    **{f"check-{name}-{codes}": f"check {options} --exit-codes {codes}"
       for codes in ("own", "npd", "autopkgtest", "nagios")
       for name, options in (("ok", "--device cpu"), ("problem", "--simulate rdna1-rocm52-conv-dead"),
                             ("nothing", "--device cuda:7"), ("usage", "--simulate nowhere"))},
    "check-unknown": "check --device cpu --budget 2",
    "check-json": "check --simulate rdna1-rocm52-conv-dead --json --metrics check.prom",
    "check-results": "check $bn-dead/results.json --simulate bn-dead --json",
    "verify": "run --verify $bn-dead/results.json --out verified",
    **{f"list-{table}": f"list {table}" for table in
       ["settings", "solvers", "problems", "checks", "machines", "variables", "gpus", "causes"]},
    "shapes": "shapes -o shapes.json -- $PYTHON -c "
              "'import torch; torch.nn.Conv2d(3, 4, 3)(torch.ones(1, 3, 8, 8))'",
    "wrong-machine": "run --simulate nowhere",
    "wrong-results": "report $CORPUS/0",
}  # fmt: skip
#: Files that a command writes in addition to its output.
WRITES = {
    "table-html": ["table.html"], "submit-check": ["bundles"], "table-site": ["site"],
    "shapes": ["shapes.json"],
    "check-json": ["check.prom"],
    **{f"report-{form}": [f"report.{form}"] for form in ("html", "md", "json", "junit")},
}  # fmt: skip

TIME = "ns|us|ms|s|seconds?|min(?:utes)?|hours?"
UNITS = "[KMGT]i?B|bytes|%|times|x|GFLOP/s|TFLOP/s|GB/s|degrees|MHz|W|rpm|C"
#: Each pattern with its replacement, in order.
NORMAL = [
    (r"(attr-scratchpad:\S*,)(\d[\d.e-]*|NUMBER|FLOAT)(?!\S)", r"\1NUMBER"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?|\d{4}-\d\d-\d\d", "DATE"),
    (r"\d{8}-\d{6}|\d\d-[A-Z][a-z]{2}-\d{4} at [\d:]{8}", "DATE"),
    (r"(_seconds) [\d.]+", r"\1 N"),
    (r"\b(time|seconds)(=\"?)\d+\.\d+", r"\1\2N"),
    (r"(rocmprobe[ -]v?)\d+\.\d+\.\d+[\w.+]*", r"\1VERSION"),
    (r"(\bpid \d+|process \d+)\b", "PID"),
    (r"0x[0-9a-f]{6,}|\b[0-9a-f]{12,64}\b|(?<=#)[0-9a-f]{6}\b", "HASH"),
    (rf"(?<![\w.])(\d+(\.\d+)?(e[+-]?\d+)?|N) ?({TIME})(?![\w/-])", "TIME"),
    (rf"(?<![\w.])\d+(\.\d+)?(e[+-]?\d+)? ?({UNITS})(?![\w/-])", r"N \3"),
    (r"\b\d{1,3}(,\d{3})+\b|(?<=\| )\d+\.\d+(?= \|)|(?<=_bytes` \| `)\d+", "NUMBER"),
    (r"\b\d+\.\d+e[+-]\d+\b|\b\d+e-\d+\b", "FLOAT"),
    (r"File \"[^\"]+\", line \d+", "File, line"),
]
#: Numbers under these keys depend on the machine and the moment.
VOLATILE = re.compile(r"pid|port|bytes|size|mtime|time|seconds|hash|digest|sha|load|free|used|rocmprobe$")


def normal(text: str, folders: dict[str, str]) -> str:
    """Return ``text`` without paths, dates, times, process ids and hashes."""
    for folder, name in sorted(folders.items(), key=lambda item: -len(item[0])):
        text = text.replace(folder, name)
    for pattern, replacement in NORMAL:
        text = re.sub(pattern, replacement, text)
    return text


def normal_data(value: Any, folders: dict[str, str], key: str = "") -> Any:
    """Return JSON data with the same replacements, and without floats and volatile numbers."""
    if isinstance(value, dict):
        return {
            normal(name, folders): normal_data(item, folders, key if name == "value" else name)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [normal_data(item, folders, key) for item in value]
    if isinstance(value, str):
        return normal(value, folders)
    if isinstance(value, float) or (isinstance(value, int) and VOLATILE.search(key) and value not in (0, 1)):
        return "NUMBER"
    return value


class VisibleText(HTMLParser):
    """The text of a page, one piece per line, without scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.hidden = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if data.strip() and not self.hidden:
            self.lines.append(" ".join(data.split()))


def digest(results: dict[str, Any], folders: dict[str, str]) -> dict[str, Any]:
    """Return the parts of the results that a redesign must not change."""
    recommendation = results.get("recommendation") or {}
    return {
        "partial": results.get("partial"),
        "outcomes": {
            re.sub(
                "#.*", "", each["id"]
            ): f"{each['state']}, cause {each.get('cause')}, rung {each.get('rung')}"
            for each in sorted(results["outcomes"], key=lambda each: each["id"])
        },
        "findings": {
            each["id"]: {
                name: normal(str(each.get(name)), folders) for name in ("severity", "layer", "cause", "title")
            }
            for each in sorted(results["findings"], key=lambda each: each["id"])
        },
        "verdict": recommendation.get("verdict"),
        "sentence": normal(recommendation.get("sentence") or "", folders),
        "configuration": normal_data(recommendation.get("configuration"), folders),
        "per": normal_data(recommendation.get("per"), folders),
    }


def file_text(path: Path, folders: dict[str, str]) -> Any:
    """Return a written file in a form that can be compared."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return {normal(str(file.relative_to(path)), folders): file_text(file, folders) for file in files}
    if not path.exists():
        return "missing"
    if path.suffix == ".zip":
        return "an archive"
    text = path.read_text("utf-8", "replace")
    if path.suffix == ".json":
        data = json.loads(text)
        return digest(data, folders) if "outcomes" in data else normal_data(data, folders)
    if path.suffix == ".html":
        text = "\n".join(VisibleText(text).lines)
    return normal(text, folders).splitlines()


class Recorder:
    """A recorder that runs rocmprobe in one temporary folder and writes normalised files into another."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder, self.work = folder, work
        folder.mkdir(parents=True, exist_ok=True)
        (work / "tmp").mkdir()
        corpus = CHECKOUT.parent / "shared" / "corpus" / "train.jsonl"
        for number, line in enumerate(corpus.read_text("utf-8").splitlines()[:2]):
            (work / f"log-{number}").write_text(json.loads(line)["log"], "utf-8")
        # Locks are per user, so a separate folder for locks hides the runs of others.
        self.env = {**os.environ, "COLUMNS": "400", "LC_ALL": "C.UTF-8", "TMPDIR": str(work / "tmp")}
        self.env["XDG_RUNTIME_DIR"] = str(work / "tmp")
        self.folders = {
            str(work): "WORK",
            str(CHECKOUT): "CHECKOUT",
            sys.prefix: "PREFIX",
            sys.base_prefix: "BASE",
        }

    def write(self, name: str, data: Any) -> None:
        text = json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False)
        (self.folder / f"{name}.json").write_text(text + "\n", "utf-8")

    def output(self, arguments: list[str]) -> dict[str, Any]:
        """Run one command and return its exit code and normalised output."""
        ended = subprocess.run(
            [sys.executable, "-m", "rocmprobe", *arguments],
            cwd=self.work, env=self.env, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        recorded: dict[str, Any] = {"exit": ended.returncode}
        for name, text in (("stdout", ended.stdout), ("stderr", ended.stderr)):
            try:
                recorded[name] = normal_data(json.loads(text), self.folders)
            except ValueError:
                recorded[name] = [" ".join(line.split()) for line in normal(text, self.folders).splitlines()]
        return recorded

    def run(self, name: str) -> None:
        """Make one run and record its results and the end of its output."""
        out = name[len("run-") :]
        arguments = ["run", *RUNS[name], "--out", out]
        if name == "run-interrupted":
            first = self.interrupt(arguments, self.work / out)
            arguments = ["run", "--resume", out]
        recorded = self.output(arguments)
        lines = recorded.pop("stdout")
        begin = next((number for number, line in enumerate(lines) if line.startswith("Verdict")), 0)
        recorded["summary"] = lines[begin:]
        if name == "run-interrupted":
            recorded["interrupted"] = first
        recorded["results"] = file_text(self.work / out / "results.json", self.folders)
        recorded["files"] = sorted(file.name for file in (self.work / out).glob("*.*"))
        self.write(name, recorded)

    def interrupt(self, arguments: list[str], out: Path) -> dict[str, Any]:
        """Interrupt a run after its first outcomes, and record how it ended."""
        process = subprocess.Popen(
            [sys.executable, "-m", "rocmprobe", *arguments],
            cwd=self.work, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        journal = out / "journal.jsonl"
        while process.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") > 20):
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        code = process.wait()
        return {"exit": code, "partial": json.loads((out / "results.json").read_text("utf-8")).get("partial")}

    def command(self, name: str) -> None:
        """Run one command on recorded runs and record its output and the files that it writes."""
        line = COMMANDS[name].replace("$CORPUS/", str(self.work / "log-")).replace("$PYTHON", sys.executable)
        recorded = self.output(shlex.split(re.sub(r"\$(?=[a-z])", "", line)))
        for written in WRITES.get(name, []):
            recorded[written] = file_text(self.work / written, self.folders)
        self.write(name, recorded)

    def timed(self, name: str) -> None:
        began = time.monotonic()
        (self.run if name in RUNS else self.command)(name)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def record(folder: Path, patterns: list[str], processes: int) -> None:
    """Record every entry whose name matches, with the runs that its command needs."""
    chosen = {
        name for name in [*RUNS, *COMMANDS] if any(fnmatch.fnmatchcase(name, each) for each in patterns)
    }
    commands = [name for name in COMMANDS if name in chosen]
    needed = {f"run-{run}" for name in commands for run in re.findall(r"\$([a-z][a-z0-9-]*)", COMMANDS[name])}
    runs = [name for name in RUNS if name in chosen | needed]
    with tempfile.TemporaryDirectory(prefix="same-") as work:
        recorder = Recorder(folder, Path(work).resolve())
        with ThreadPoolExecutor(processes) as pool:
            list(pool.map(recorder.timed, runs))
        # Commands run in order, because some read what an earlier command wrote.
        for name in commands:
            recorder.timed(name)


def flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value in JSON data with its path. A list of strings stays whole."""
    if isinstance(value, dict) and value:
        for name in value:
            yield from flat(value[name], f"{key}/{name}" if key else str(name))
    elif isinstance(value, list) and not all(isinstance(item, str) for item in value):
        for number, item in enumerate(value):
            yield from flat(item, f"{key}/{number}")
    else:
        yield key, value


def differences(before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each key with a different value, or for texts each group of lines that changed.

    Both sides are normalised again, so that an old recording stays useful when a pattern is added. Lines that
    only moved are no difference, because some tables are sorted by time.
    """
    old, new = dict(flat(normal_data(before, {}))), dict(flat(normal_data(after, {})))
    for key in sorted({*old, *new}):
        one, two = old.get(key), new.get(key)
        if isinstance(one, list) and isinstance(two, list):
            matcher = difflib.SequenceMatcher(None, one, two, autojunk=False)
            changed = [code for code in matcher.get_opcodes() if code[0] != "equal"]
            gone = Counter(line for _, a, b, _, _ in changed for line in one[a:b])
            came = Counter(line for _, _, _, c, d in changed for line in two[c:d])
            moved = set(gone) - set(gone - came) - set(came - gone)
            for _, a, b, c, d in changed:
                left = [line for line in one[a:b] if line not in moved]
                right = [line for line in two[c:d] if line not in moved]
                if left or right:
                    yield f"{key}, line {a + 1}", " | ".join(left), " | ".join(right)
        elif key not in old or key not in new or one != two:
            yield key, "(none)" if key not in old else one, "(none)" if key not in new else two


def compare(before: Path, after: Path, expected: Optional[Path]) -> int:
    """Print every difference. Return 1 if a difference is not expected."""
    reasons = []
    for line in expected.read_text("utf-8").splitlines() if expected else []:
        pattern, separator, reason = line.partition(" # ")
        if line.strip() and not (separator and reason.strip()):
            sys.exit(f"{expected}: no reason (` # REASON`) in: {line}")
        if line.strip():
            reasons.append((re.compile(pattern), reason.strip()))
    used, unexpected = set(), 0
    names = sorted({path.stem for folder in (before, after) for path in folder.glob("*.json")})
    for name in names:
        files = [folder / f"{name}.json" for folder in (before, after)]
        old, new = [json.loads(file.read_text("utf-8")) if file.exists() else "missing" for file in files]
        if "missing" in (old, new):
            old, new = [data if data == "missing" else "recorded" for data in (old, new)]
        for key, one, two in differences(old, new):
            text = f"{name}: {key or 'entry'}: {one!s:.500} -> {two!s:.500}"
            found = [item for item in reasons if item[0].search(text)][:1]
            used.update(found)
            unexpected += not found
            print(f"{text}  (expected: {found[0][1]})" if found else text)
    for pattern, reason in reasons:
        if (pattern, reason) not in used:
            print(f"expected, but absent: {pattern.pattern} # {reason}")
    print(f"{len(names)} entries, {unexpected} unexpected differences")
    return int(unexpected > 0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--only", action="append", metavar="PATTERN")
    recording.add_argument(
        "-n", dest="processes", type=int, default=2, help="runs at the same time (default: 2)"
    )
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--expected", type=Path)
    given = parser.parse_args()
    if given.command == "record":
        # A shell ignores SIGINT in background jobs, and children inherit that; run-interrupted needs it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        record(given.folder, given.only or ["*"], given.processes)
        return 0
    return compare(given.before, given.after, given.expected)


if __name__ == "__main__":
    sys.exit(main())
