# SPDX-License-Identifier: Apache-2.0
"""
Kept verdicts: what the engine would say, for whatever changes, and no evaluation for what does not.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.cel.check import check
from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.parse import parse
from gateway.policy.cel.programs import Programs
from gateway.policy.engine import (
    ACCESS_RULE,
    POLICY,
    EngineUnavailableError,
    Outcome,
    Program,
    Verdict,
)
from gateway.policy.known_verdicts import KnownVerdicts
from gateway.policy.vocabulary import variables_of
from gateway.policy.words import reads
from ledger.format.canonical import Json

LOG = 1
ACTIVATION: dict[str, Any] = {
    "table": {"exists": True, "properties": {"owner": "ann"}, "columns": [{"name": "id"}], "format_version": 2},
    "result": {
        "exists": True,
        "properties": {"owner": "ann", "color": "red"},
        "columns": [{"name": "id"}, {"name": "tenant_id"}],
        "snapshot": {"id": "1", "operation": "append", "summary": {"added-records": "3"}},
        "format_version": 2,
    },
    "commit": {"name": "orders", "namespace": ["sales"], "actions": ["META_SET_PROPERTIES"], "updates": [{"a": 1}]},
    "principal": {"sub": "ann", "roles": ["data-eng"]},
    "request": {"method": "POST", "path": "/x"},
    "op": "UPDATE_ENTITY",
    "path": "sales.orders",
    "role": "data-eng",
    "roles": ["data-eng"],
    "api": {"apiName": "Iceberg", "apiVersion": 1},
}


class Evaluator:
    """The engine's own evaluation, in this process; `asked` has the programs of each call."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.fails = False
        self._programs = Programs()

    async def check(self, expression: str, *, log_id: int, timeout_s: float, kind: str = POLICY) -> None:
        assert log_id == LOG
        assert timeout_s > 0
        self._programs.check(expression, kind=kind)

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, log_id: int, timeout_s: float
    ) -> tuple[Verdict, ...]:
        assert timeout_s > 0
        self.asked.append([program.id for program in programs])
        if self.fails:
            verdicts = tuple(verdict_of(program, Outcome.ERROR, "was not judged") for program in programs)
            raise EngineUnavailableError("gone", verdicts=verdicts)
        pairs = [(program.kind, program.expression) for program in programs]
        results = self._programs.judge(pairs, activation, log_id=log_id)
        return tuple(
            verdict_of(program, result.outcome, result.detail)
            for program, result in zip(programs, results, strict=True)
        )


def verdict_of(program: Program, outcome: Outcome, detail: str = "") -> Verdict:
    return Verdict(kind=program.kind, id=program.id, version=program.version, outcome=outcome, detail=detail)


def program(expression: str, *, name: str = "p", kind: str = POLICY, version: int = 1) -> Program:
    return Program(kind=kind, id=name, version=version, expression=expression)


async def judge(
    known: KnownVerdicts,
    engine: Evaluator,
    *programs: Program,
    activation: Mapping[str, Json] = ACTIVATION,
    log_id: int = LOG,
) -> list[Outcome]:
    verdicts = await known.judge(engine, programs, activation, log_id=log_id, timeout_s=1.0)
    assert [(one.kind, one.id, one.version) for one in verdicts] == [(p.kind, p.id, p.version) for p in programs]
    return [one.outcome for one in verdicts]


def changed(path: Sequence[str | int], value: Any) -> dict[str, Any]:
    """The activation with another value at one place."""
    whole = copy.deepcopy(ACTIVATION)
    holder: Any = whole
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return whole


# What is kept


async def test_what_was_judged_on_the_same_inputs_is_not_evaluated_again() -> None:
    known, engine = KnownVerdicts(), Evaluator()
    programs = [program(f"result.columns.exists(c, c.name == 'c{n}') || {n} < 5", name=f"p{n}") for n in range(10)]
    rule = program("op == 'UPDATE_ENTITY' && path.startsWith('sales.')", name="r", kind=ACCESS_RULE)
    expected = [Outcome.ALLOW] * 6 + [Outcome.DENY] * 5
    for activation in (ACTIVATION, changed(["result", "properties", "color"], "blue"), changed(["role"], "x")):
        assert await judge(known, engine, rule, *programs, activation=activation) == expected
    assert engine.asked == [["r", *(one.id for one in programs)]]


CHANGES: list[tuple[str, str, Sequence[str | int], Any]] = [
    (POLICY, "result.properties.color == 'red'", ["result", "properties", "color"], "blue"),
    (POLICY, "result.columns[1].name == 'tenant_id'", ["result", "columns", 1, "name"], "x"),
    (POLICY, "size(result.columns) == 2", ["result", "columns"], [{"name": "id"}]),
    (POLICY, "result.snapshot.summary['added-records'] == '3'", ["result", "snapshot", "summary"], {}),
    (POLICY, "result['format_version'] == 2", ["result", "format_version"], 3),
    (POLICY, "[result].all(r, r.format_version == 2)", ["result", "format_version"], 3),
    (POLICY, "result\n  . format_version == 2", ["result", "format_version"], 3),
    (POLICY, "result // .exists\n .format_version == 2", ["result", "format_version"], 3),
    (POLICY, "has(table.properties.owner)", ["table", "properties"], {}),
    (POLICY, "'data-eng' in principal.roles", ["principal", "roles"], []),
    (POLICY, "commit.updates.all(u, u.a == 1)", ["commit", "updates", 0, "a"], 2),
    (POLICY, "result.properties.map(k, k)[0] == 'owner'", ["result", "properties"], {"color": "red", "owner": "ann"}),
    (POLICY, "request.method == 'POST'", ["request", "method"], "DELETE"),
    (ACCESS_RULE, "op == 'UPDATE_ENTITY'", ["op"], "READ_ENTITY_VALUE"),
    (ACCESS_RULE, "role == 'data-eng'", ["role"], "guest"),
    (ACCESS_RULE, "path == 'sales.orders'", ["path"], "sales.others"),
    (ACCESS_RULE, "api.apiVersion == 1", ["api", "apiVersion"], 2),
]


@pytest.mark.parametrize(("kind", "expression", "path", "value"), CHANGES, ids=str)
async def test_a_changed_input_is_judged_anew(
    kind: str, expression: str, path: Sequence[str | int], value: Any
) -> None:
    known, engine, one = KnownVerdicts(), Evaluator(), program(expression, kind=kind)
    assert await judge(known, engine, one) == [Outcome.ALLOW]
    (after,) = await judge(known, engine, one, activation=changed(path, value))
    assert after is not Outcome.ALLOW
    assert await judge(known, engine, one) == [Outcome.ALLOW]
    assert len(engine.asked) == 2, "both inputs are known"


async def test_another_program_tenant_kind_or_text_is_judged_by_itself() -> None:
    known, engine = KnownVerdicts(), Evaluator()
    await judge(known, engine, program("true"))
    await judge(known, engine, program("true", version=2))
    assert len(engine.asked) == 1, "the same text, whatever it is called"
    await judge(known, engine, program("true "))
    await judge(known, engine, program("true", kind=ACCESS_RULE))
    await judge(known, engine, program("true"), log_id=LOG + 1)
    assert len(engine.asked) == 4


async def test_absent_null_and_empty_are_different_inputs() -> None:
    known, engine, one = KnownVerdicts(), Evaluator(), program("'a' == 'a' || role == ''", kind=ACCESS_RULE)
    absent = {name: value for name, value in ACTIVATION.items() if name != "role"}
    for activation in (absent, changed(["role"], None), changed(["role"], ""), changed(["role"], "\x00" * 32)):
        await judge(known, engine, one, activation=activation)
    assert len(engine.asked) == 4
    without = program("role == 'x'", kind=ACCESS_RULE)
    assert await judge(known, engine, without, activation=absent) == [Outcome.ERROR]
    assert await judge(known, engine, without, activation=changed(["role"], "x")) == [Outcome.ALLOW]


async def test_errors_are_never_kept() -> None:
    known, engine = KnownVerdicts(), Evaluator()
    programs = [program("commit.requirements[7].type == 'x'", name="e"), program("true", name="t")]
    for _ in range(3):
        assert await judge(known, engine, *programs) == [Outcome.ERROR, Outcome.ALLOW]
    assert engine.asked == [["e", "t"], ["e"], ["e"]]


async def test_a_call_without_an_answer_keeps_nothing_and_tells_what_was_known() -> None:
    known, engine = KnownVerdicts(), Evaluator()
    await judge(known, engine, program("true", name="a"))
    engine.fails = True
    programs = [program("1 == 2", name="b"), program("true", name="a"), program("1 == 1", name="c")]
    with pytest.raises(EngineUnavailableError) as raised:
        await judge(known, engine, *programs)
    assert [(one.id, one.outcome) for one in raised.value.verdicts] == [
        ("b", Outcome.ERROR),
        ("a", Outcome.ALLOW),
        ("c", Outcome.ERROR),
    ]
    engine.fails = False
    assert await judge(known, engine, *programs) == [Outcome.DENY, Outcome.ALLOW, Outcome.ALLOW]
    assert engine.asked[-1] == ["b", "c"]


async def test_inputs_that_cannot_be_sent_are_left_to_the_engine() -> None:
    known, engine, one = KnownVerdicts(), Evaluator(), program("role == 'x'", kind=ACCESS_RULE)
    for _ in range(2):
        assert await judge(known, engine, one, activation=changed(["role"], "\ud800")) == [Outcome.DENY]
    assert len(engine.asked) == 2
    assert len(known) == 0


async def test_the_tenant_with_the_most_makes_room_for_others() -> None:
    known, engine = KnownVerdicts(verdicts_max=250), Evaluator()
    one = program("role == 'x'", kind=ACCESS_RULE)
    await judge(known, engine, one, log_id=2)
    for number in range(400):
        await judge(known, engine, one, activation=changed(["role"], str(number)))
    assert 150 <= len(known) <= 250
    asked = len(engine.asked)
    await judge(known, engine, one, log_id=2)
    await judge(known, engine, one, activation=changed(["role"], "399"))
    assert len(engine.asked) == asked
    await judge(known, engine, one, activation=changed(["role"], "0"))
    assert len(engine.asked) == asked + 1


async def test_a_cache_without_room_judges_everything() -> None:
    known, engine = KnownVerdicts(verdicts_max=0), Evaluator()
    for _ in range(2):
        assert await judge(known, engine, program("true"), program("1 == 2")) == [Outcome.ALLOW, Outcome.DENY]
    assert (len(engine.asked), len(known)) == (2, 0)


# Exactness

paths = st.sampled_from(
    (
        *("table", "result", "commit", "principal", "request", "x", "'result.exists'", "(result).exists"),
        *("table.properties", "result.properties", "result.columns", "result.exists", "result['exists']"),
        *("result.snapshot", "result.snapshot.summary", "commit.updates", "commit.name", "principal.roles"),
        *("result . format_version", "table\n.format_version"),
    )
)
conditions = st.recursive(
    st.one_of(
        st.builds("{} == {}".format, paths, paths),
        st.builds("has({}.owner)".format, paths),
        st.builds("size({}) == 2".format, paths),
        st.builds("{}.size() > 1".format, paths),
        st.builds("'owner' in {}".format, paths),
        st.builds("[{}].exists(result, result.exists)".format, paths),
        st.builds("{}.exists(x, x == {})".format, paths, paths),
        st.builds("{} // result.exists\n".format, st.sampled_from(["true", "false"])),
    ),
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("{}.all(x, {})".format, paths, inner),
    ),
    max_leaves=4,
)


def needs_of(expression: str) -> dict[str, set[str] | None] | None:
    """What the parser finds that an expression reads; None if it does not compile."""
    try:
        return check(parse(expression, Interruption()), kind=POLICY)
    except Exception:  # noqa: BLE001 - whatever the reason, no such expression is ever saved
        return None


@given(conditions)
@settings(max_examples=400, deadline=None)  # the first one builds the parser
def test_nothing_is_missed_that_an_expression_reads(expression: str) -> None:
    needs, found = needs_of(expression), reads(expression, variables_of(POLICY))
    for variable, fields in (needs or {}).items():
        assert variable in found
        assert found[variable] is None or (fields is not None and fields <= (found[variable] or set()))


@given(st.lists(conditions, min_size=1, max_size=4), st.data())
@settings(max_examples=150, deadline=None)
def test_a_kept_verdict_is_the_one_that_the_engine_would_give(expressions: list[str], data: st.DataObject) -> None:
    programs = [program(one, name=f"p{n}") for n, one in enumerate(expressions) if needs_of(one) is not None]
    known = KnownVerdicts()
    for _ in range(4):
        _, _, path, value = data.draw(st.sampled_from(CHANGES))
        activation = changed(path, value) if data.draw(st.booleans()) else ACTIVATION
        asked = [one for one in programs if data.draw(st.booleans())]
        for one in asked:
            (alone,) = asyncio.run(judge(KnownVerdicts(), Evaluator(), one, activation=activation))
            (kept,) = asyncio.run(judge(known, Evaluator(), one, activation=activation))
            assert kept is alone
