"""Logs as people paste them: whatever stands around the lines, the lines come out, each once."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sample_logs import LINES
from tiers import examples

from rocmprobe.explain.explain import explain
from rocmprobe.explain.facts import Facts, facts_in
from rocmprobe.text.log import LONGEST, Log, of_text, read_log

CORPUS = Path(__file__).parents[2] / "shared" / "corpus" / "train.jsonl"
FATAL = "RuntimeError: HIP error: invalid device function"
BASES = st.lists(st.sampled_from(LINES), min_size=1, max_size=8, unique=True)


def texts(log: Log) -> list[str]:
    return [line.text for line in log.lines]


def coloured(line: str, number: int) -> str:
    at = number * 7 % len(line)
    return f"\x1b]0;title\x07\x1b[1;31m{line[:at]}\x1b[0m\x1b[K{line[at:]}\x1b[m"


AROUND: dict[str, Callable[[str, int], str]] = {
    "nothing": lambda line, number: line,
    "colours": coloured,
    "colours without escapes": lambda line, number: f"[1;31m{line}[0m",
    "python logging": lambda line, number: f"2024-01-01 12:00:0{number % 10},123 {line}",
    "clock": lambda line, number: f"[12:00:0{number % 10}] {line}",
    "GitHub Actions": lambda line, number: f"2024-11-21T10:00:0{number % 10}.1234567Z {line}",
    "rank": lambda line, number: f"[rank{number}]: {line}",
    "worker": lambda line, number: f"(RayWorkerWrapper pid=12{number}, ip=10.0.0.1) {line}",
    "vllm": lambda line, number: f"(EngineCore_0 pid={number}) {line}",
    "mpirun": lambda line, number: f"[1,{number}]<stderr>:{line}",
    "compose": lambda line, number: f"web-1  | {line}",
    "journal": lambda line, number: (
        f"Nov 21 12:00:0{number % 10} host kernel: [   12.34567{number % 10}] {line}"
    ),
    "dmesg": lambda line, number: f"[    1.57691{number % 10}] {line}",
    "dmesg -T": lambda line, number: f"[Sat Jan  7 14:25:5{number % 10} 2023] {line}",
    "quote": lambda line, number: f"> > {line}",
    "HTML": lambda line, number: (
        line.replace("&", "&amp;").replace(">", "&gt;").replace("<", "&lt;") + "<br>"
    ),
    "control characters": lambda line, number: f"\x00\x01{line}\x08\u200b",
    "quoted, of a container, dated": lambda line, number: f"> web-1  | 2024-01-01 12:00:00,5 {line}",
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_what_stands_around_a_line_is_taken_off(around: str, newline: str) -> None:
    pasted = newline.join(AROUND[around](line, number) for number, line in enumerate(LINES))
    log = of_text(f"```text{newline}{pasted}{newline}```{newline}")
    assert texts(log) == list(LINES)
    assert [line.number for line in log.lines] == list(range(2, len(LINES) + 2))
    assert facts_in(log) == facts_in(of_text("\n".join(LINES)))


@settings(max_examples=examples(40))
@given(
    BASES, st.lists(st.sampled_from(sorted(AROUND)), min_size=8, max_size=8), st.sampled_from(["\n", "\r\n"])
)
def test_all_of_it_mixed_changes_neither_lines_nor_facts(
    base: list[str], around: list[str], newline: str
) -> None:
    rows = [AROUND[name](line, 3) for name, line in zip(around, base)]
    # A line that ends where windows do, by chance, looks as if it went on in the next one.
    assume(not any(len(row) in (80, 100, 120, 132, 160) for row in rows))
    pasted = newline.join(rows)
    assert texts(of_text(pasted)) == base
    assert facts_in(of_text(pasted)) == facts_in(of_text("\n".join(base)))


@settings(max_examples=examples(120))
@given(BASES, st.sampled_from([80, 100, 120]), st.booleans())
def test_lines_that_a_terminal_wrapped_are_there_whole(base: list[str], width: int, quoted: bool) -> None:
    mark = "> " if quoted else ""
    rows = [line[at : at + width] for line in base for at in range(0, len(line), width)]
    log = of_text("\n".join(mark + row for row in rows))
    assert [line for line in base if not any(line in text for text in texts(log))] == []
    assert facts_in(log) == facts_in(of_text("\n".join(base)))


def test_lines_that_a_mail_wrapped_between_words_are_there_whole() -> None:
    mail = (
        "> Memory access fault by GPU node-1 (Agent handle: 0x55f8b54eec30) on\n"
        "> address 0x7f2a53193000. Reason: Page not present or supervisor\n"
        "> privilege.\n"
    )
    assert texts(of_text(mail))[0] == LINES[6]


def test_a_line_that_begins_with_control_characters_is_a_new_one() -> None:
    # Two lines of a log are equally long by chance, as if a window had wrapped them.
    base = [
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=159760, emitted "
        "seq=159762",
        "RuntimeError: HIP error: invalid device function",
        "rocBLAS error: Cannot read /opt/rocm-5.4.0/lib/rocblas/library/TensileLibrary.dat: Illegal seek",
    ]
    around = ("quoted, of a container, dated", "control characters", "journal")
    rows = [AROUND[name](line, 3) for name, line in zip(around, base)]
    assert len(rows[0]) == len(rows[2])
    assert texts(of_text("\n".join(rows))) == base


def test_lines_that_are_whole_are_not_joined() -> None:
    # The longest line of a log does not go on in the next.
    log = (
        "start\n"
        "amdgpu: group render is asked to own the node /dev/kfd of this host now\n"
        "copying of the user's dotfiles: Permission denied\n"
        "rocminfo: end\n"
    )
    assert texts(of_text(log)) == log.splitlines()

    # Lines that happen to be long are not joined.
    log = (
        "MIOpen(HIP): Warning [EvaluateInvokers] Solver <GemmFwdRest>, workspace required: 256573\nAborted\n"
    )
    assert texts(of_text(log)) == log.splitlines()


def test_repeated_lines_are_one_with_their_count() -> None:
    log = of_text("start\nsize 12 at 0x7f00\nsize 345 at 0xabc1\nend\nsize 6 at 0x1\n")
    assert [(line.number, line.text, line.count, line.last) for line in log.lines] == [
        (1, "start", 1, 1), (2, "size 12 at 0x7f00", 3, 5), (4, "end", 1, 4),
    ]  # fmt: skip
    assert log.total == 5

    # Targets are told apart.
    names = ["library_gfx1010.dat", "library_gfx1030.dat", "library_gfx90a.dat"]
    assert texts(of_text("\n".join(names))) == names

    # A progress bar leaves its last state.
    bars = "\r".join(f" {done}%|##  | {done}/100 [00:00<00:01, 9.5it/s]" for done in range(10, 100, 10))
    log = of_text(f"before\n{bars}\rMIOpen Error: x\nafter\n")
    assert texts(log) == ["before", "90%|##  | 90/100 [00:00<00:01, 9.5it/s]", "MIOpen Error: x", "after"]
    assert log.lines[-1].number == 3


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings(encoding: str) -> None:
    content = "\r\n".join(LINES).encode(encoding)
    if encoding == "utf-16-be":
        content = b"\xfe\xff" + content
    assert texts(read_log(io.BytesIO(content))) == list(LINES)


def test_a_file_of_an_old_mac() -> None:
    assert texts(of_text("one\rtwo\rthree\r")) == ["one", "two", "three"]


def test_very_long_lines_keep_start_and_end() -> None:
    content = b"MIOpen Error: " + b"x" * 3_000_000 + b" failed\nnext\n"
    log = read_log(io.BytesIO(content))
    assert log.lines[0].text.startswith("MIOpen Error: x")
    assert log.lines[0].text.endswith("x failed")
    assert len(log.lines[0].text) < 10_000
    assert (log.lines[1].text, log.lines[1].number, log.total) == ("next", 2, 2)
    assert log.shortened == 1
    assert of_text("\n".join(("x" * LONGEST, "y" * (LONGEST + 1), "z" * 9_000, "end"))).shortened == 2


def test_of_too_many_lines_start_and_end_and_failures_are_kept() -> None:
    words = random.Random(8)
    noise = ["".join(words.choices("bcdgjkmnpqsvwxz", k=20)) for _ in range(60_000)]
    noise[30_000] = "MIOpen Error: in the middle"
    log = of_text("\n".join(noise))
    found = texts(log)
    assert found[:100] == noise[:100]
    assert found[-100:] == noise[-100:]
    assert "MIOpen Error: in the middle" in found
    assert len(found) < 21_000
    assert log.left_out == log.total - len(found)


FRAGMENTS = st.sampled_from((
    "\x1b[31m", "\x1b]0;", "\r", "\n", "\r\n", "\0", "\ud800", "<br>", "&gt;", "&#0;", "> ", "```", "\u2028",
    "[12:00:00] ", "  |  ", "2024-01-01 12:00:00,1 ", "(a pid=1) ", "0x", "gfx1030", "gfx", "10.3.0", "\x85",
    "HSA_OVERRIDE_GFX_VERSION=", "torch==", "2.0.1+rocm5.4.2", "Name: torch\nVersion: ", "/opt/rocm-",
    "Gfx Major/Minor/Stepping: 9/9/9", "AMD Radeon RX ", "Navi 10 [Radeon", "x" * 79, "\n" + "y" * 80, *LINES,
))  # fmt: skip


def in_utf16(text: str) -> bytes:
    return text.encode("utf-16", "replace")


@settings(max_examples=examples(150))
@given(st.lists(st.one_of(FRAGMENTS, st.text(max_size=20)), max_size=30).map("".join))
def test_any_text_is_read(text: str) -> None:
    log = of_text(text)
    facts_in(log)
    assert all(line.text and line.number <= line.last <= log.total for line in log.lines)
    assert not any(ord(letter) < 32 or letter == "\x7f" for line in log.lines for letter in line.text)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.one_of(st.binary(max_size=60), FRAGMENTS.map(in_utf16)),
        max_size=20,
    )
)
def test_any_bytes_are_read(parts: list[bytes]) -> None:
    facts_in(read_log(io.BytesIO(b"".join(parts))))


@pytest.mark.skipif(not CORPUS.exists(), reason="the recorded reports are not here")
def test_recorded_reports_are_read() -> None:
    for report in map(json.loads, CORPUS.read_text("utf-8").splitlines()):
        log = of_text(report["log"])
        printed = [line.strip() for line in report["log"].splitlines() if line.strip("` \n")]
        assert log.lines, report["id"]
        # Less the dates of loggers, every line is there that differs by more than numbers.
        assert sum(line.count for line in log.lines) >= len(printed), report["id"]


@pytest.mark.parametrize(
    ("seen", "meant"),
    [
        ("error: \u2018gfx1010\u2019 was not declared", "error: 'gfx1010' was not declared"),
        ("\u201cgfx1010\u201d isn\u2019t", "\"gfx1010\" isn't"), ("invalid\u00a0device", "invalid device"),
    ],
)  # fmt: skip
def test_quotes_of_compilers_and_blanks_of_pages(seen: str, meant: str) -> None:
    assert texts(of_text(seen)) == [meant]


# ---- pages and strings -----------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(LINES), min_size=2, max_size=8, unique=True), st.booleans())
def test_a_log_in_a_string_of_json_is_read_line_by_line(base: list[str], logger: bool) -> None:
    log = "\n".join(base)
    spelled = json.dumps({"level": "error", "msg": f'"x"\n{log}\n'} if logger else f'"\n{log}\n')
    found = texts(of_text(spelled))
    assert [line for line in base if line not in found] == []


def test_of_a_long_log_in_one_line_failures_are_kept() -> None:
    words = [f"step {chr(97 + at % 26)}{at}: some words to fill the line" for at in range(500)]
    words[250] = FATAL
    log = of_text(json.dumps("\n".join(words)))
    assert FATAL in texts(log)
    assert sum(len(text) for text in texts(log)) <= LONGEST


@pytest.mark.parametrize(
    "line", [r"C:\new\node\lib fails", r"cannot read D:\nvidia\name\x.dll", r"printf('a\n')"]
)
def test_a_path_of_windows_is_no_end_of_a_line(line: str) -> None:
    assert texts(of_text(line)) == [line]


@pytest.mark.parametrize(
    "page",
    [
        f'<td class="blob-code"><span class="pl-s">{FATAL}</span></td>',
        f"<pre><code class='lang-text'>start<br>{FATAL}</code></pre>",
        f"<p>It fails:</p><p>{FATAL}</p><p>Any idea?</p>",
        f'<details><summary>Log</summary><div class="js-line">x</div><div class="y">{FATAL}</div></details>',
        f'<a href="https://example.com/x">{FATAL}</a>',
        f"<shreddit>{FATAL.replace(':', '&#58;')}<br/>".replace("<shreddit>", "<section data-x='1'>"),
        FATAL.replace(" ", "&amp;nbsp;", 1),
    ],
)
def test_what_pages_put_around_a_line(page: str) -> None:
    assert FATAL in texts(of_text(page))


@pytest.mark.parametrize("line", ["std::vector<a> x", "#include <limits> // x", "<stdin>:1:2: error: x"])
def test_what_looks_like_a_tag_and_is_none(line: str) -> None:
    assert texts(of_text(line)) == [line]


# ---- a fatal line far above ------------------------------------------------------------------------------


@pytest.mark.parametrize("between", [5_000])
def test_a_fatal_line_far_above_harmless_warnings_is_the_answer(between: int) -> None:
    names = [re.sub("[0-9]", lambda digit: "ghijklmnop"[int(digit[0])], f"{at:06}") for at in range(between)]
    noise = [f"step {name}: all is well" for name in names]
    warnings = [
        "MIOpen(HIP): Warning [SQLiteBase] Missing system database file: gfx1030_40.kdb",
        "UserWarning: Flash attention was not compiled for current AMD GPU architecture.",
        "amdgpu.ids: No such file or directory",
    ]
    alone = explain(of_text(FATAL), Facts())
    log = of_text("\n".join((FATAL, *noise, *warnings)))
    found = explain(log, Facts())
    assert (found.answer, found.layer) == (alone.answer, alone.layer) == ("located", "torch-build")
    assert found.why[0] == f"line 1: {FATAL}"
