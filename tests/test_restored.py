"""Lines in another language, misread, broken or cut: read in the words that programs print, or left."""

from __future__ import annotations

import json
import re
import time

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rows import every_row
from sample_logs import LINES
from tiers import examples

from rocmprobe.explain.explain import explain
from rocmprobe.explain.log_facts import Facts, facts_in
from rocmprobe.text.log import LONGEST, Log, of_text
from rocmprobe.text.restored import ASCII_PARTS, PHRASES, restored
from rocmprobe.text.tables import table

MESSAGES = table("translations")["message"]
LANGUAGES = ("de", "fr", "es", "pt_BR", "it", "ru", "pl", "zh_CN", "zh_TW", "ja", "ko")
PRINTED = [
    (row["english"], language, text)
    for row in MESSAGES
    for language, texts in row["text"].items()
    for text in texts
]
LOADER = "OSError: libamdhip64.so.6: cannot open shared object file: No such file or directory"
FATAL = "RuntimeError: HIP error: invalid device function"


def texts(log: Log) -> list[str]:
    return [line.text for line in log.lines]


@every_row(
    ("text", "name"),
    [
        ("INTERNAL: Failed call to hipGetFuncBySymbol: hipError_t(98)", "hipErrorInvalidDeviceFunction"),
        ("HIP error: 209", "hipErrorNoBinaryForGpu"),
        ("runtime: executable_load failed (0x1010)", "HSA_STATUS_ERROR_INVALID_CODE_OBJECT"),
        ("hsa_init returned 4104", "HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
    ],
)
def test_errors_that_stand_there_by_number(text, name):
    assert name in of_text(text).lines[0].text


def test_the_table() -> None:
    assert len({row["english"] for row in MESSAGES}) == len(MESSAGES)
    for row in MESSAGES:
        assert row["source"]
        assert len(row["text"]) >= 8, row["english"]
        for printed in (text for of_language in row["text"].values() for text in of_language):
            assert printed == printed.strip(" .。")
            assert row["english"] not in printed
            # Else a log in ASCII letters is not looked at.
            assert not printed.isascii() or any(part in printed for part in ASCII_PARTS), printed
    assert {row["english"] for row in MESSAGES if all(name in row["text"] for name in LANGUAGES)} >= {
        "No such file or directory", "Permission denied", "cannot open shared object file", "Aborted",
        "The specified module could not be found",
    }  # fmt: skip


@every_row(("english", "language", "printed"), PRINTED)
def test_a_message_in_any_language_is_read_in_english(english: str, language: str, printed: str) -> None:
    line = of_text(f"program: {printed}").lines[0]
    assert line.text == f"program: {english}", language
    assert line.printed == f"program: {printed}"
    assert line.quoted == f"program: {printed} (read as: {english})"


@every_row("language", LANGUAGES)
def test_the_loader_in_any_language_gives_the_same_answer(language: str) -> None:
    text = LOADER
    for row in MESSAGES:
        if row["english"] in text:
            text = text.replace(row["english"], row["text"][language][0])
    assert text != LOADER
    log = of_text(text)
    assert texts(log) == [LOADER]
    found = explain(log, Facts())
    assert [cause.score for cause in found.causes] == [
        cause.score for cause in explain(of_text(LOADER), Facts()).causes
    ]
    assert any(f"line 1: {text} (read as: " in said for said in found.causes[0].evidence)


@every_row("language", LANGUAGES)
def test_how_a_program_ended_is_known_in_any_language(language: str) -> None:
    by_english = {row["english"]: row["text"].get(language, [row["english"]])[0] for row in MESSAGES}
    segmentation, dumped = by_english["Segmentation fault"], by_english["core dumped"]
    assert facts_in(of_text(f"{segmentation} ({dumped})")).exit == "segv"
    assert (
        facts_in(of_text(f"./run.sh: 3: 12345 {by_english['Aborted']}   ({dumped}) python x.py")).exit
        == "abort"
    )


def test_a_number_of_windows_is_enough_in_a_language_that_is_not_known() -> None:
    end = 'Error loading "C:\\torch\\lib\\c10.dll" or one of its dependencies.'
    log = of_text(f"OSError: [WinError 126] Jokin moduuli puuttuu. {end}")
    assert texts(log) == [f"OSError: [WinError 126] The specified module could not be found. {end}"]


@every_row(
    "line",
    [
        "Der Versuch wurde Abgebrochen und neu begonnen",
        "Morto un papa, se ne fa un altro",
        "Ich bin dabei nicht hier",
    ],
)
def test_a_sentence_is_no_message(line: str) -> None:
    assert [each.words for each in of_text(line).lines] == [()]


# ---- text from a screenshot ------------------------------------------------------------------------------

ALIKE = {
    "l": "lI1|",
    "I": "Il1|",
    "i": "il1I",
    "1": "1lI",
    "O": "O0",
    "0": "0O",
    "o": "o0",
    "m": ("m", "rn"),
    "w": ("w", "vv"),
}


@st.composite
def misread(draw: st.DrawFn, phrase: str) -> str:
    return "".join(draw(st.sampled_from(ALIKE[letter])) if letter in ALIKE else letter for letter in phrase)


@settings(max_examples=examples(200))
@given(st.data())
def test_a_misread_phrase_is_read_as_it_was_printed(data: st.DataObject) -> None:
    phrase = data.draw(st.sampled_from(PHRASES))
    seen = data.draw(misread(phrase))
    assume(seen.lower() != phrase.lower())
    line = of_text(f"x: {seen} y").lines[0]
    assert line.text == f"x: {phrase} y"
    assert line.quoted == f"x: {seen} y (read as: {phrase})"


@every_row(
    ("seen", "meant"),
    [
        ("gfx1O30", "gfx1030"), ("gfxl03O", "gfx1030"), ("gfx9Oa", "gfx90a"),
        ("for gfx1l00.", "for gfx1100."),
        ("HSA_OVERRIDE_GFX_VERSION=1O.3.0 x", "HSA_OVERRIDE_GFX_VERSION=10.3.0 x"),
        ("\u201cgfx1010\u201d isn\u2019t", "\"gfx1010\" isn't"),
        ("in\u00advalid device\u00a0function", "invalid device function"),
        ("\ufb01le not \ufb02ushed by \uff28\uff29\uff30", "file not flushed by HIP"), ("-\u2010x", "--x"),
    ],
)  # fmt: skip
def test_letters_that_can_be_nothing_else(seen: str, meant: str) -> None:
    assert texts(of_text(seen)) == [meant]


@every_row(
    "line",
    ["gfx1030", "gfxIO", "gfx99ZZ", "gfxSSSS", "Invalid device function", "the model lnside", "gfx11OOx"],
)
def test_what_may_be_something_else_stays(line: str) -> None:
    assert texts(of_text(line)) == [line]
    assert of_text(line).lines[0].words == ()


# ---- broken and cut lines --------------------------------------------------------------------------------


@settings(max_examples=examples(150))
@given(st.sampled_from(PHRASES), st.data())
def test_a_phrase_broken_at_the_end_of_a_line_is_whole(phrase: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(2, len(phrase) - 2))
    blank = phrase[at] == " "
    assume(blank or phrase[at - 1 : at + 1].isalpha())
    rest = phrase[at + 1 :] if blank else phrase[at:]
    assert phrase in texts(of_text(f"I get {phrase[:at]}{'' if blank else '-'}\n{rest} here"))[0]


def test_lines_that_are_not_neighbours_are_not_joined() -> None:
    found = texts(of_text("I get invalid device func-\n\nother\ntion here"))
    assert not any("invalid device function" in text for text in found)


@every_row(
    ("line", "meant"),
    [
        ("RuntimeError: HIP error: invalid device functio…", FATAL),
        ("RuntimeError: HIP error: invalid device func...", FATAL),
        ("RuntimeError: HIP error: invalid device functio", FATAL),
        ("hipErrorNoBinaryForG", "hipErrorNoBinaryForGpu"),
        ("miopenStatusUnknownE…", "miopenStatusUnknownError"),
        ("Memory access fault by …", "Memory access fault by GPU"),
        # What may go on in several ways, or is whole, stays.
        ("HIP error: invalid device …", None),
        ("HIP error: invalid device", None),
        ("miopenStatusNotI", None),
        ("HSA_STATUS_ERROR_INVALID_I…", None),
        ("hipErrorInvalidDevice", None),
        ("no such file exists...", None),
    ],
)
def test_a_phrase_that_was_cut_off(line: str, meant: str | None) -> None:
    assert texts(of_text(line)) == [meant or line]


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=8, unique=True))
def test_lines_as_programs_print_them_stay(base: list[str]) -> None:
    assert all(not line.words for line in of_text("\n".join(base)).lines)


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


@every_row("line", [r"C:\new\node\lib fails", r"cannot read D:\nvidia\name\x.dll", r"printf('a\n')"])
def test_a_path_of_windows_is_no_end_of_a_line(line: str) -> None:
    assert texts(of_text(line)) == [line]


@every_row(
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


@every_row("line", ["std::vector<a> x", "#include <limits> // x", "<stdin>:1:2: error: x"])
def test_what_looks_like_a_tag_and_is_none(line: str) -> None:
    assert texts(of_text(line)) == [line]


# ---- a fatal line far above ------------------------------------------------------------------------------


@every_row("between", [5_000])
def test_a_fatal_line_far_above_harmless_warnings_is_the_answer(between: int) -> None:
    names = [re.sub("[0-9]", lambda digit: "ghijklmnop"[int(digit[0])], f"{at:06}") for at in range(between)]
    noise = [f"step {name}: all is well" for name in names]
    warnings = [
        "MIOpen(HIP): Warning [SQLiteBase] Missing system database file: gfx1030_40.kdb",
        "UserWarning: Flash attention was not compiled for current AMD GPU architecture.",
        "amdgpu.ids: No such file or directory",
    ]
    alone = explain(of_text(FATAL), Facts()).causes[0].cause
    log = of_text("\n".join((FATAL, *noise, *warnings)))
    found = explain(log, Facts())
    assert found.causes[0].cause == alone
    assert found.causes[0].evidence[0].startswith(f"line 1: {FATAL}")


def test_a_log_in_plain_english_costs_little() -> None:
    line = "step {}: all is well and nothing was said about any failure of a device".format
    log = of_text(
        "\n".join(line("".join(chr(97 + (at >> shift & 15)) for shift in (0, 4, 8))) for at in range(4_000))
    )
    started = time.perf_counter()
    assert restored(texts(log), [each.number for each in log.lines]) == {}
    assert time.perf_counter() - started < 1.0
