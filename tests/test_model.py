"""Results to JSON and back, the schema, and files that are no results."""

from __future__ import annotations

import dataclasses
import json
import math
from importlib import resources

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import examples

from rocmprobe.model.facts import GPU_FACTS
from rocmprobe.model.results import (
    DIRECTIONS,
    RUNGS,
    SCHEMA_VERSION,
    SEVERITIES,
    VERDICTS,
    Attempt,
    BadInput,
    Configuration,
    Fact,
    Finding,
    Gpu,
    Machine,
    Outcome,
    Recommendation,
    Results,
    Setting,
    Trial,
)
from rocmprobe.model.results_file import from_json, read_results, to_json, write_results
from rocmprobe.model.states import STATES

TEXT = st.text(max_size=12)
MAYBE_TEXT = st.none() | TEXT
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
VALUE = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | NUMBER | TEXT
VALUES = st.dictionaries(TEXT, VALUE, max_size=3)
TEXTS = st.dictionaries(TEXT, TEXT, max_size=3)
LINES = st.lists(TEXT, max_size=3).map(tuple)
FACT = st.builds(Fact, VALUE, TEXT)
FACTS = st.dictionaries(TEXT, FACT, max_size=3)
VARIABLES = st.dictionaries(TEXT, st.builds(Fact, MAYBE_TEXT, TEXT), max_size=3)
OF_TYPE = {str: TEXT, int: st.integers(-(10**12), 10**12), bool: st.booleans(), float: NUMBER}
GPU = st.builds(
    Gpu, **{name: st.builds(Fact, st.none() | OF_TYPE[kind], TEXT) for name, kind in GPU_FACTS.items()}
)


def several(strategy):
    return st.lists(strategy, max_size=2).map(tuple)


RESULTS = st.builds(
    Results,
    schema_version=st.just(SCHEMA_VERSION),
    rocmprobe=TEXT,
    started=TEXT,
    finished=MAYBE_TEXT,
    partial=st.booleans(),
    simulated=MAYBE_TEXT,
    options=VALUES.filter(lambda options: not {"purpose", "targets"} & set(options)),
    machine=st.builds(Machine, several(GPU), FACTS, VARIABLES),
    settings=several(
        st.builds(
            Setting, TEXT, TEXT, st.sampled_from(VERDICTS), TEXTS, VALUES, st.booleans(), st.booleans(),
            st.booleans(), MAYBE_TEXT, TEXT, TEXT,
        )
    ),
    problems=several(VALUES.map(lambda values: {**values, "id": "conv2d"})),
    trials=several(
        st.builds(Trial, TEXT, TEXT, TEXT, TEXT, TEXT, st.booleans(), TEXT, NUMBER)
    ),
    outcomes=several(
        st.builds(
            Outcome, TEXT, TEXT, TEXT, TEXT, st.sampled_from(RUNGS), st.sampled_from(list(STATES)),
            TEXT, MAYBE_TEXT, MAYBE_TEXT, MAYBE_TEXT, st.none() | st.sampled_from(DIRECTIONS), TEXT,
            MAYBE_TEXT, MAYBE_TEXT, MAYBE_TEXT, several(st.builds(Attempt, TEXT, TEXT, TEXT, NUMBER)),
            MAYBE_TEXT,
            VALUES, VALUES, VALUES, VALUES, LINES,
        )
    ),
    findings=several(
        st.builds(Finding, TEXT, st.sampled_from(SEVERITIES), TEXT, TEXT, TEXT, LINES, TEXT)
    ),
    recommendation=st.none()
    | st.builds(
        Recommendation, st.sampled_from(VERDICTS), TEXT,
        st.builds(Configuration, MAYBE_TEXT, TEXTS, TEXT, LINES),
        st.dictionaries(TEXT, VALUES, max_size=2), several(VALUES), TEXT, TEXT, TEXT,
    ),
)  # fmt: skip

EMPTY = Results(SCHEMA_VERSION, "0.1.0", "now", None, False, None, {}, Machine(), (), (), (), ())
OUTCOME = Outcome("cpu/default/copy", "cpu", "default", "copy", "copy", "pass")


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(results=RESULTS)
def test_whatever_results_hold_survives_the_file(results, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "results.json"
    write_results(results, path)
    assert read_results(path) == results


def test_the_schema_has_the_words_and_fields_of_the_classes():
    text = resources.files("rocmprobe").joinpath("data/results.schema.json").read_text("utf-8")
    classes = json.loads(text)["$defs"]
    outcome = classes["Outcome"]["properties"]
    assert set(outcome["state"]["enum"]) == set(STATES)
    assert set(outcome["rung"]["enum"]) == set(RUNGS)
    assert set(outcome["direction"]["anyOf"][0]["enum"]) == set(DIRECTIONS)
    assert set(classes["Setting"]["properties"]["verdict"]["enum"]) == set(VERDICTS)
    assert set(classes["Finding"]["properties"]["severity"]["enum"]) == set(SEVERITIES)
    fields = {field.name for field in dataclasses.fields(Results)}
    assert set(classes["Results"]["properties"]) == fields
    assert set(classes["Results"]["required"]) == fields - {
        "findings", "recommendation", "redacted", "changes", "telemetry",
        "environment", "not_reached",
    }  # fmt: skip


def written(tmp_path, change=lambda data: None, results=EMPTY):
    data = json.loads(json.dumps(to_json(results)))
    change(data)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(data))
    return path


def refused(path):
    """The message of the refusal: one line that names the file and the mend."""
    with pytest.raises(BadInput) as refusal:
        read_results(path)
    message = str(refusal.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    assert "; " in message
    assert len(message) < len(str(path)) + 600
    return message


class TestFilesThatAreNoResults:
    def test_missing(self, tmp_path):
        assert "No such file" in refused(tmp_path / "nothing.json")

    def test_a_folder_that_is_no_run(self, tmp_path):
        with pytest.raises(BadInput, match=r"results\.json: cannot be read .*; name the folder of a run"):
            read_results(tmp_path)

    @pytest.mark.parametrize(
        "content",
        [b"", b"not json", b"\xff\xfe\x00", b"{", b"[" * 100_000, b'{"a":' * 50_000, b"1" * 10_000, b"nul"],
    )
    def test_not_json(self, tmp_path, content):
        path = tmp_path / "results.json"
        path.write_bytes(content)
        assert "not JSON" in refused(path)

    @pytest.mark.parametrize(
        "content",
        [
            "[]",
            "3",
            "null",
            '"text"',
            "{}",
            '{"name": "package"}',
            '{"schema_version": 9, "name": "of another program"}',
        ],
    )
    def test_a_foreign_file(self, tmp_path, content):
        path = tmp_path / "results.json"
        path.write_text(content)
        assert (
            refused(path)
            == f"{path}: not a results file of rocmprobe; name the folder of a run, or its results.json"
        )

    @pytest.mark.parametrize("version", [2, 99, "1", [1], "x\n" * 999])
    def test_another_version(self, tmp_path, version):
        path = tmp_path / "results.json"
        path.write_text(json.dumps({"schema_version": version, "rocmprobe": "9.9"}))
        assert "schema_version is" in refused(path)

    @pytest.mark.parametrize("version", [True, 1.0])
    def test_a_version_that_only_looks_right(self, tmp_path, version):
        assert refused(written(tmp_path, lambda data: data.update(schema_version=version)))

    @pytest.mark.parametrize(
        ("change", "place"),
        [
            (lambda data: data.pop("machine"), "machine"),
            (lambda data: data.update(partial="no"), "partial"),
            (lambda data: data["outcomes"][0].update(state="fine"), "$.outcomes[0].state"),
            (lambda data: data["outcomes"][0].update(evidence="a line"), "$.outcomes[0].evidence"),
            (lambda data: data["outcomes"][0].update(device=7), "device"),
            (
                lambda data: data["outcomes"][0].update(attempts=[{"state": 1, "trial": "", "message": ""}]),
                "state",
            ),
            (lambda data: data.update(findings=[{"id": 1}]), "$.findings[0]"),
            (lambda data: data.update(options=[]), "options"),
            (
                lambda data: data["options"].update(targets=3),
                "options: Expected `array`, got `int`",
            ),
            (
                lambda data: data["options"].update(purpose="fun"),
                "options: Invalid enum value 'fun'",
            ),
            (
                lambda data: data["options"].update(shapes={"problems": {}}),
                "options: Expected `array`, got `object` - at `$.shapes.problems`",
            ),
            (lambda data: data["machine"]["facts"].update({"a\nb": 3}), "$.machine.facts[...]"),
            (lambda data: data.update(outcomes={}), "outcomes"),
            (lambda data: data.update(trials=[[]]), "$.trials[0]"),
            (lambda data: data.update(problems=[3]), "$.problems[0]"),
        ],
    )
    def test_a_breach_of_the_schema_is_placed(self, tmp_path, change, place):
        path = written(tmp_path, change, dataclasses.replace(EMPTY, outcomes=(OUTCOME,)))
        assert place in refused(path)

    @pytest.mark.parametrize("layers", ["text", 5, {}, [1]])
    def test_a_recommendation_that_is_none(self, tmp_path, layers):
        results = dataclasses.replace(EMPTY, recommendation=Recommendation("native", "fine"))
        path = written(
            tmp_path, lambda data: data["recommendation"]["configuration"].update(layers=layers), results
        )
        assert "recommendation" in refused(path)

    def test_nesting_that_later_code_could_not_walk(self, tmp_path):
        deep = {}
        for _ in range(400):
            deep = {"deep": deep}
        assert "nested" in refused(written(tmp_path, lambda data: data["options"].update(deep)))


class TestWriting:
    def test_a_failed_write_leaves_the_old_file(self, tmp_path):
        path = tmp_path / "results.json"
        write_results(EMPTY, path)
        before = path.read_bytes()
        broken = dataclasses.replace(EMPTY, options={"no JSON": object()})
        with pytest.raises(TypeError):
            write_results(broken, path)
        assert path.read_bytes() == before

    def test_numbers_that_json_lacks_become_null(self, tmp_path):
        numerics = {"drift": math.inf, "ratio": math.nan, "fine": 1.5}
        path = tmp_path / "results.json"
        write_results(
            dataclasses.replace(EMPTY, outcomes=(dataclasses.replace(OUTCOME, numerics=numerics),)), path
        )

        def forbidden(word):
            raise AssertionError(word)

        data = json.loads(path.read_text("utf-8"), parse_constant=forbidden)
        assert data["outcomes"][0]["numerics"] == {"drift": None, "ratio": None, "fine": 1.5}

    def test_half_a_surrogate_pair_is_neither_written_nor_read(self, tmp_path):
        path = tmp_path / "results.json"
        results = dataclasses.replace(
            EMPTY, outcomes=(dataclasses.replace(OUTCOME, evidence=("\udcff\ud800",)),)
        )
        write_results(results, path)
        assert read_results(path).outcomes[0].evidence == ("??",)
        path.write_text(path.read_text("utf-8").replace("??", "\\ud800"))
        with pytest.raises(BadInput, match="outcomes/0/evidence/0: text that is not Unicode"):
            read_results(path)


PLAIN = json.loads(json.dumps(to_json(OUTCOME)))


@pytest.mark.parametrize(
    "changed",
    [
        {}, {"timings": {"fwd": 1, "list": [1, {"a": None}]}}, {"attempts": []}, {"evidence": ["a", "b"]},
        {"problem": None}, {"expected": None}, {"unheard_of": 1},
        {"attempts": [{"trial": "t", "state": "pass", "seconds": 1}]},
    ],
)  # fmt: skip
def test_what_has_the_right_types_is_taken(changed):
    found = to_json(from_json(Outcome, {**PLAIN, **changed}))
    for name in set(changed) - {"unheard_of", "attempts"}:
        assert json.loads(json.dumps(found[name])) == changed[name]


@pytest.mark.parametrize(
    "changed",
    [
        {"state": 1}, {"attempts": [1]}, {"timings": []}, {"id": None}, {"evidence": "a"},
        {"attempts": [{"trial": "t", "state": "pass", "seconds": True}]},
    ],
)  # fmt: skip
def test_what_has_another_type_is_refused_by_its_place(changed):
    with pytest.raises(BadInput, match=rf"Outcome: .*\$\.{next(iter(changed))}"):
        from_json(Outcome, {**PLAIN, **changed})
