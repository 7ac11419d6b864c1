"""The report as Markdown: what it says, and that nothing which a results file says becomes more than text."""

from __future__ import annotations

import dataclasses

import pytest
import sample
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from markdown_reading import faults, fences, headings, lists
from tiers import examples

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.summary import summarize
from rocmprobe.model.results import Results
from rocmprobe.model.results_file import from_json
from rocmprobe.report import escape
from rocmprobe.report.issue.issue import LIMIT, issue_text
from rocmprobe.report.terminal import markdown
from rocmprobe.report.terminal.github import job_summary
from rocmprobe.report.terminal.markdown import markdown as report

#: Beside what attacks a page, what Markdown and GitHub act upon.
HOSTILE = (
    f"{sample.HOSTILE} @octocat #123 GH-7 octo/cat#9 1234567deadbeef https://evil.example www.evil.example "
    ":tada: [a](javascript:alert(4)) ![i](x) `` ` ``` ~~~ | \\| a|b </details> <!-- *b* __c__ ~~d~~ $e$ # h\n"
    "# heading\n---\n===\n> quoted\n- item\n1. item\n    code\n```\n~~~\n</details>\n<details open>\n"
)
FRAGMENTS = [
    *HOSTILE.split(" "), *"`|<>@#*_[]()!\\~$&:-=+.\n\t ", "``", "```", "\n\n", "\r\n", "\u2028", "\x00",
    "\x1b[0m", "word", "12", "1.", "a_b", "\ud800", "é", "\U0001d4b3", "\u200b", "\ufeff",
]  # fmt: skip
foreign = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=4)), max_size=24).map("".join)
FORMS = {
    "report": lambda results: report(summarize(results)),
    "summary": lambda results: job_summary(summarize(results)),
    "issue": lambda results: issue_text(summarize(results)),
    "full issue": lambda results: issue_text(summarize(results), full=True),
}
LIMITS = {
    "report": markdown.LIMIT,
    "issue": 16_000,
    "full issue": LIMIT,
}


@given(foreign)
@example("WWW")
@example("- item")
@example("1. item")
@example("a_b`c`")
@settings(max_examples=examples(100))
def test_foreign_text_stays_text_wherever_it_stands(text: str) -> None:
    row = [escape.words(text), escape.code(text), "x"]
    document = "\n\n".join(
        [
            escape.words(text), f"- {escape.words(text)}", f"> **Note:** {escape.words(text)}",
            f"### {escape.code(text)}, {escape.words(text)}.", escape.table(("a", "b", "c"), [row, row]),
            escape.folded("Log", f"{escape.fence(text)}\n\n{escape.lines([text, text], 1)}"), "end",
        ]
    )  # fmt: skip
    assert faults(document) == []
    assert len(headings(document)) == 1
    assert lists(document) == 1


@given(st.text("ab`\n|", max_size=200), st.integers(80, 120))
@settings(max_examples=examples(60))
def test_a_fence_holds_what_was_said_or_marks_the_cut(text: str, limit: int) -> None:
    ((_, content),) = fences(escape.fence(text, limit=limit))
    said = text.strip("\n")
    if len(said) > limit:
        assert "characters cut here" in content
        assert len(content) <= limit + 1
    elif "`" * 10 not in said:
        assert content.rstrip("\n") == said


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("made", [sample.rdna1, sample.expected, sample.healthy_cpu])
def test_hostile_results_make_the_same_document(made, form: str) -> None:
    benign, hostile = made(), from_json(Results, sample.hostile(made(), HOSTILE))
    usual, spoiled = FORMS[form](benign), FORMS[form](hostile)
    assert faults(usual) == []
    assert faults(spoiled) == []
    assert len(headings(spoiled)) == len(headings(usual))
    assert len(spoiled) <= LIMITS.get(form, 60_000)


@pytest.mark.thorough
@given(foreign)
@settings(max_examples=examples(8), phases=[Phase.generate])
def test_any_text_in_every_place_of_the_results(text: str) -> None:
    results = from_json(Results, sample.hostile(sample.rdna1(), text))
    for form in FORMS.values():
        assert faults(form(results)) == []


@pytest.mark.thorough
def test_lines_of_ten_megabytes_are_cut_and_the_cut_is_marked() -> None:
    line = "x`|<@a " * (10 * 2**20 // 7)
    results = sample.rdna1()
    broken = dataclasses.replace(
        results.outcomes[7], state="crash", evidence=(line,), trial=results.trials[0].id
    )
    finding = dataclasses.replace(results.findings[0], title=line, advice=line, evidence=(line,))
    trials = tuple(dataclasses.replace(trial, log=line) for trial in results.trials)
    long = dataclasses.replace(
        results, outcomes=(broken,), findings=(finding,) * 60, trials=trials,
        simulated=line, problems=(),
    )  # fmt: skip
    for form, made in FORMS.items():
        document = made(long)
        assert len(document) <= LIMITS.get(form, 60_000)
        assert faults(document) == []
    assert headings(issue_text(summarize(long), full=True))[-1] == "All failures"
    assert "cut here" in report(summarize(long))


def test_the_report_says_what_the_page_says() -> None:
    results = sample.rdna1()
    document = report(summarize(results))
    assert headings(document)[0] == "rocmprobe: Bypass · AMD Radeon RX 5600 XT"
    assert "**SIMULATED:**" in document.split("\n\n")[1]
    assert "ISA override" in document
    assert results.recommendation is not None
    assert ("python", f"{results.recommendation.configuration.code}\n") in fences(document)
    for found in results.findings:
        assert found.title in document
        assert all(line in document for line in found.evidence)
    assert "✕ error" in document
    assert "nothing ran on a real GPU" in document
    assert "the GPU itself: the machine was simulated" in document
    assert "any AMD GPU: this run did not test one" in report(summarize(sample.healthy_cpu()))


def test_without_a_recommendation_there_still_is_a_report() -> None:
    document = report(
        summarize(dataclasses.replace(sample.rdna1(), recommendation=None, findings=(), partial=True))
    )
    assert "No recommendation" in headings(document)[0]
    assert "Partial run" in document
    assert faults(document) == []


def test_a_remedy_is_one_piece_of_code() -> None:
    summary = summarize(judge(sample.rdna1()))
    remedies = {found.remedy for found in summary.findings if "--" in found.remedy}
    assert remedies
    assert all(f"**Remedy:** `{command}`" in report(summary) for command in remedies)
