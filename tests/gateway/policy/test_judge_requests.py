# SPDX-License-Identifier: Apache-2.0
"""
Requests to judge and their answers: what is sent is what is read, however much of it the worker keeps.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.natives import check_json
from gateway.policy.engine import POLICY, Outcome, Program
from gateway.policy.frames import FRAME_BYTES_MAX, FrameError, FrameTooLargeError
from gateway.policy.inputs import Encoded, Inputs, LastingValues, encoded, plan_of
from gateway.policy.judge_requests import JudgeRequest, parse_answers, parse_request, verdicts_of
from gateway.policy.kept_values import ALL, VALUE_BYTES_MIN, KeptValues, KnownValues, UnknownValueError
from gateway.policy.progress import DETAILS_BYTES_MAX, NOTHING_JUDGED, Judged, Progress

COLUMNS = [{"id": number, "name": f"column_{number}", "type": "string"} for number in range(8)]
PADDING = "x" * VALUE_BYTES_MIN


def program(expression: str, name: str = "p") -> Program:
    return Program(kind=POLICY, id=name, version=1, expression=expression)


def kept_values(values_max: int = 256) -> KeptValues:
    return KeptValues(partial(check_json, interruption=Interruption()), values_max=values_max)


def read(
    programs: list[Program], variables: dict[str, Any], known: KnownValues | None, kept: KeptValues
) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """What a worker reads of a request."""
    asked = JudgeRequest(programs, Inputs(variables), log_id=1).asked(known)
    return parse_request(orjson.loads(orjson.dumps(asked)), kept)


def test_what_no_program_names_is_not_sent() -> None:
    variables: dict[str, Any] = {
        "table": {"columns": COLUMNS, "location": "s3://a"},
        "result": {"columns": COLUMNS, "properties": {"a": "b"}},
        "principal": {"roles": ["a"]},
    }
    programs = [program("result.properties.size() == 1"), program("table.location != ''")]
    pairs, sent = read(programs, variables, None, kept_values())
    assert pairs == [(POLICY, one.expression) for one in programs]
    assert sent == {"table": {"location": "s3://a"}, "result": {"properties": {"a": "b"}}}


@pytest.mark.parametrize(
    ("expression", "variables", "sent"),
    [
        ("result.columns.size() > 0", {"result": {}}, {"result": {}}),
        ("result.columns.size() > 0", {}, {}),
        ("result.columns.size() > 0", {"result": 7}, {"result": 7}),
        ("result.columns.size() + result.refs.size() > 0", {"result": [7]}, {"result": [7]}),
        ("result == result || result.columns == []", {"result": {"a": 1}}, {"result": {"a": 1}}),
    ],
)
def test_a_variable_that_is_there_is_sent_even_without_what_is_read_of_it(
    expression: str, variables: dict[str, Any], sent: dict[str, Any]
) -> None:
    assert read([program(expression)], variables, None, kept_values())[1] == sent


def test_a_value_is_sent_twice_and_then_by_its_digest() -> None:
    known, kept = KnownValues(), kept_values()
    variables: dict[str, Any] = {"result": {"columns": COLUMNS, "properties": {"a": "b"}}}
    programs = [program("result.columns.size() > 0 && 'a' in result.properties")]
    sizes = []
    for _ in range(4):
        asked = JudgeRequest(programs, Inputs(variables), log_id=1).asked(known)
        frame = orjson.dumps(asked)
        sizes.append(len(frame))
        _, found = parse_request(orjson.loads(frame), kept)
        assert found == variables
    assert sizes[2] == sizes[3] < sizes[0] / 2
    assert asked["named"] == {"result": {"columns": encoded(COLUMNS).digest.hex()}}
    assert asked["variables"]["result"].keys() == {"properties"}, "what is short is sent as it is"


def test_a_digest_that_is_not_kept_is_an_error_and_never_another_value() -> None:
    known, kept = KnownValues(), kept_values()
    variables = {"result": {"columns": COLUMNS}}
    for _ in range(2):
        read([program("result.columns == []")], variables, known, kept)
    with pytest.raises(UnknownValueError):
        read([program("result.columns == []")], variables, known, kept_values())
    known.clear()
    assert JudgeRequest([program("true")], Inputs({}), log_id=1).asked(known)["forget"] == ALL
    assert read([program("result.columns == []")], variables, known, kept)[1] == variables


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), max_size=40))
def test_a_worker_reads_what_was_sent_whatever_is_kept_and_forgotten(rounds: list[list[int]]) -> None:
    names = (
        "columns",
        "properties",
        "refs",
        "location",
        "uuid",
        "queries",
        "sort_fields",
        "snapshot",
        "exists",
        "fields",
    )
    known, kept = KnownValues(values_max=4, bytes_max=4 * len(PADDING)), kept_values(values_max=4)
    for places in rounds:
        table = {names[place]: PADDING + str(place) for place in places}
        expression = " || ".join(f"table.{name} == ''" for name in table)
        pairs, found = read([program(expression)], {"table": table}, known, kept)
        assert (pairs, found) == ([(POLICY, expression)], {"table": table})
        assert len(known) <= 4
        assert known.size_bytes <= 4 * len(PADDING)
        assert len(kept._values) == len(known)
        assert kept.sound <= {id(value) for value in kept._values.values()}


def test_a_worker_keeps_no_more_than_it_may() -> None:
    asked = {"log_id": 1, "programs": [], "variables": {}, "keep": {str(number): number for number in range(9)}}
    with pytest.raises(FrameError, match="at most 8 values to keep, found 9"):
        parse_request(asked, kept_values(values_max=8))


def test_a_kept_value_that_cel_has_none_for_is_checked_again_by_each_program() -> None:
    kept = kept_values()
    kept.change((), {"a": [2**64], "b": [1]})
    assert (kept.value("a"), kept.value("b")) == ([2**64], [1])
    assert kept.sound == {id(kept.value("b"))}
    kept.change(["b"], {"a": [3]})
    assert not kept.sound, "neither what was forgotten, nor what took its place"


def test_lists_that_stay_the_same_are_written_once_and_others_each_time() -> None:
    lasting, columns = LastingValues(values_max=2), [{"name": "a"}]
    first = Inputs({"result": {"columns": columns}}, lasting).encoded("result", "columns")
    assert Inputs({"result": {"columns": columns}}, lasting).encoded("result", "columns") is first
    other = Inputs({"result": {"columns": [{"name": "b"}]}}, lasting).encoded("result", "columns")
    assert other == encoded([{"name": "b"}])
    for number in range(3):
        lasting.encoded([number])
    assert len(lasting._known) == 2
    assert Inputs({"result": {"columns": columns}}, lasting).encoded("result", "columns") == first


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"log_id": 1, "programs": [["policy"]], "variables": {}},
        {"log_id": 1, "programs": 7, "variables": {}},
        {"log_id": 1, "programs": [], "variables": 7},
        {"log_id": 1, "programs": [], "variables": {}, "named": {"a": {"b": {}}}},
        {"log_id": 1, "programs": [], "variables": {}, "named": []},
        {"log_id": 1, "programs": [], "variables": {}, "keep": 1},
        {"log_id": 1, "programs": [], "variables": {"a": 7}, "keep": {"d": 1}, "named": {"a": {"b": "d"}}},
    ],
)
def test_what_is_no_request_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(FrameError):
        parse_request(asked, kept_values())


def test_a_request_larger_than_a_frame_is_refused() -> None:
    half = "x" * (FRAME_BYTES_MAX // 2)
    with pytest.raises(FrameTooLargeError, match="bytes of variables for policies"):
        JudgeRequest([program("table == result")], Inputs({"table": half, "result": half}), log_id=1)


GOOD = {"letters": "ade", "details": {"2": "why"}, "used_s": 0.5}


def test_answers_have_a_verdict_for_each_program() -> None:
    (answer,) = parse_answers({"judged": [GOOD]}, programs=[3], is_whole=True)
    assert (answer.judged, answer.used_s) == (Judged(letters="ade", details={2: "why"}), 0.5)
    programs = [program("true", name) for name in "abc"]
    found = [(one.id, one.outcome, one.detail) for one in verdicts_of(programs, answer.judged)]
    assert found == [("a", Outcome.ALLOW, ""), ("b", Outcome.DENY, ""), ("c", Outcome.ERROR, "why")]


@pytest.mark.parametrize(
    ("judged", "programs"),
    [
        (None, [3]),
        ([], [3]),
        ([GOOD], []),
        ([GOOD], [2]),
        ([GOOD], [4]),
        ([GOOD], [3, 0]),
        ([GOOD, GOOD], [3]),
        ([GOOD, {**GOOD, "letters": "ad"}], [3, 3]),
        ([{**GOOD, "letters": "adx"}], [3]),
        ([{**GOOD, "letters": ["a", "d", "e"]}], [3]),
        ([{**GOOD, "details": {"3": "why"}}], [3]),
        ([{**GOOD, "details": {"-1": "why"}}], [3]),
        ([{**GOOD, "details": {"2": 7}}], [3]),
        ([{**GOOD, "used_s": "0"}], [3]),
        ([{"letters": "ade", "details": {}}], [3]),
        ("ade", [3]),
    ],
)
def test_any_other_answer_is_refused(judged: object, programs: list[int]) -> None:
    with pytest.raises(FrameError):
        parse_answers({"judged": judged}, programs=programs, is_whole=True)


def test_only_the_last_request_of_an_answer_may_be_judged_in_part() -> None:
    part = {"letters": "a", "details": {}, "used_s": 0.1}
    found = parse_answers({"judged": [GOOD, part]}, programs=[3, 2, 5], is_whole=False)
    assert [one.judged.letters for one in found] == ["ade", "a"]
    assert parse_answers({"judged": []}, programs=[3], is_whole=False) == []
    with pytest.raises(FrameError):
        parse_answers({"judged": [part, GOOD]}, programs=[3, 3], is_whole=False)


def test_progress_is_that_of_the_call_that_was_begun_last() -> None:
    progress = Progress.unshared()
    assert progress.judged(7) == NOTHING_JUDGED
    progress.begin(7)
    for letter, detail in (("a", ""), ("e", "wrong: é"), ("d", "")):
        progress.note(letter, detail)
    assert progress.judged(7) == Judged(letters="aed", details={1: "wrong: é"})
    progress.begin(8)
    assert progress.judged(7) == NOTHING_JUDGED
    assert progress.judged(8) == NOTHING_JUDGED, "nothing is left of the one before"
    progress.note("d")
    assert progress.judged(8) == Judged(letters="d")
    progress.close()


def test_progress_without_room_for_details_has_the_letters_all_the_same() -> None:
    progress = Progress.unshared()
    progress.begin(1)
    count = DETAILS_BYTES_MAX // 4_000 + 10
    for _ in range(count):
        progress.note("e", "x" * 9_000)
    judged = progress.judged(1)
    assert judged.letters == "e" * count
    assert 0 < len(judged.details) < count
    assert set(map(len, judged.details.values())) == {4_096}
    progress.close()


def test_a_plan_names_each_field_once_and_no_field_of_what_is_read_as_a_whole() -> None:
    texts = ("result.columns == table.columns", "table == result || table.refs == {}", "table.columns == []")
    plan = plan_of(tuple((POLICY, text) for text in texts))
    assert sorted(plan.fields, key=str) == [("result", None), ("table", None)]
    assert plan.programs == Encoded(plan.programs.data, encoded([[POLICY, text] for text in texts]).digest)
