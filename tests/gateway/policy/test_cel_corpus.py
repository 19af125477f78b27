# SPDX-License-Identifier: Apache-2.0
"""
The corpus of expressions (`testkit/gateway/cel_corpus.py`) is true: what cel-python gives, and what we give, in every
way in which an expression is judged here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.policy.cel.check import FUNCTIONS, KEYWORDS, MACROS, METHODS, RESERVED
from gateway.policy.cel.programs import Programs, Result
from gateway.policy.cel.values import TYPES
from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome, PolicyNotCompiledError, Program
from gateway.policy.pool import WorkerEngine
from gateway.policy.vocabulary import Fields, variables_of
from testkit.gateway.cel_corpus import CORPUS, ERROR, NOT_CEL, OPTIONAL, SPANS_TYPE, TIMES_TYPE, Entry, Group
from testkit.gateway.cel_results import by_cel_python, by_interpreter, compiled, differences_of_ours, tree_of, variables
from testkit.servers.forked_workers import fork_worker

ENTRIES: Final = [(group, entry) for group in CORPUS for entry in group.entries]
OUTCOMES: Final = {"true": Outcome.ALLOW, "false": Outcome.DENY, ERROR: Outcome.ERROR}
DEADLINE_S: Final = 60.0
groups: Final = pytest.mark.parametrize("group", CORPUS, ids=lambda group: group.title.replace(" ", "-"))

SECTIONS: Final = {
    *("Syntax", "Name Resolution", "Numeric Values", "String and Bytes Values", "Aggregate Values", "Type Values"),
    *("Evaluation Environment", "Logical Operators", "Macros", "Field Selection", "Equality", "Numbers"),
    *("Lists and Maps", "Ordering", "Overflow", "Regular Expressions", "Arithmetic Operators", "List Operators"),
    *("Map Operators", "String Functions", "Date/Time Functions", "Types and Conversions"),
    *("Comparison Operators", "Extension Functions"),
}
"""The headings of the language definition that the corpus tests."""


def judged_as(entry: Entry) -> Iterator[tuple[str, Outcome]]:
    """Yield programs that show the result of `entry` as an outcome, and what it is."""
    result = entry.result
    if result in {"true", "false"}:
        yield entry.expression, OUTCOMES[result]
    if result in {TIMES_TYPE, SPANS_TYPE}:
        return  # these have no name here
    if result == "NaN":
        yield f"[{entry.expression}\n].all(x, x != x)", Outcome.ALLOW
    elif result == ERROR:
        yield f"({entry.expression}\n) == null", Outcome.ERROR
    else:
        value = {"Infinity": "(1.0 / 0.0)", "-Infinity": "(-1.0 / 0.0)"}.get(result, result)
        yield f"({entry.expression}\n) == {value}", Outcome.ALLOW
        yield f"({entry.expression}\n) != {value}", Outcome.DENY


def is_refused(entry: Entry, *, kind: str) -> PolicyNotCompiledError | None:
    try:
        Programs().check(entry.expression, kind=kind)
    except PolicyNotCompiledError as error:
        return error
    return None


@groups
def test_cel_python_gives_what_is_pinned(group: Group) -> None:
    """After an upgrade this says what has changed: look at each, and whether we rely on it."""
    found = [(entry, by_cel_python(entry.expression, group.kind)) for entry in group.entries]
    assert [pair for pair in found if pair[1] != (pair[0].celpy or pair[0].language)] == []


@groups
def test_compiled_functions_and_the_interpreter_give_what_the_corpus_says(group: Group) -> None:
    assert differences_of_ours(group) == []


@groups
def test_programs_are_judged_as_the_corpus_says(group: Group) -> None:
    judged = [case for entry in group.entries if entry.refused is None for case in judged_as(entry)]
    programs = Programs()
    for text, _ in judged:
        programs.check(text, kind=group.kind)
    results = list(programs.judge([(group.kind, text) for text, _ in judged], variables(group.kind), log_id=1))
    wrong = [
        (text, result)
        for (text, outcome), result in zip(judged, results, strict=True)
        if result != Result(outcome, result.detail if outcome is Outcome.ERROR else "")
    ]
    assert wrong == []


@groups
def test_what_is_refused_is_refused_at_its_place_and_for_its_own_sake(group: Group) -> None:
    for entry in group.entries:
        refused = is_refused(entry, kind=group.kind)
        if entry.refused is None:
            assert refused is None or "gives no boolean" in refused.reason, entry
        else:
            assert refused is not None, entry
            assert (refused.line, refused.column) == entry.refused, (entry, str(refused))
            assert "gives no boolean" not in refused.reason, entry


def test_every_entry_is_well_formed_and_stands_once() -> None:
    assert len(ENTRIES) >= 400
    assert [title for title, count in Counter(group.title for group in CORPUS).items() if count > 1] == []
    assert [each for each, count in Counter((g.kind, e.expression) for g, e in ENTRIES).items() if count > 1] == []
    assert {group.section for group in CORPUS} == SECTIONS
    for _, entry in ENTRIES:
        assert bool(entry.why) == entry.differs, f"a reason where we differ, and nowhere else: {entry}"
        assert entry.celpy != entry.language, f"only what differs is written: {entry}"
        assert entry.ours != entry.language, f"only what differs is written: {entry}"
        assert entry.refused or entry.ours or entry.language != NOT_CEL, f"must be refused, and where: {entry}"
        assert not (entry.ours and entry.refused), entry
        assert not entry.ours or {entry.ours, entry.language} & {ERROR, OPTIONAL}, (
            f"another value than the language's: {entry}"
        )


def parts(fields: Fields, before: str = "") -> Iterator[str]:
    for name, below in fields.items():
        yield before + name
        yield from parts(below or {}, f"{before}{name}.")


@pytest.mark.parametrize("kind", [POLICY, ACCESS_RULE])
def test_every_variable_and_field_is_read_by_an_entry(kind: str) -> None:
    texts = [entry.expression for group, entry in ENTRIES if group.kind == kind and entry.refused is None]
    assert [path for path in parts(variables_of(kind)) if not any(path in text for text in texts)] == []


def nodes(entries: Iterable[Entry]) -> Counter[str]:
    """Count what the expressions that can be parsed are made of: operators, calls, types."""
    counted: Counter[str] = Counter()
    for entry in entries:
        if entry.refused is not None:
            continue
        for node in tree_of(entry.expression).iter_subtrees():
            name: Any = None
            match node.data, node.children:
                case "ident_arg", [name, *_]:
                    counted[f"{name}()"] += 1
                case "member_dot_arg", [_, name, *_]:
                    counted[f".{name}()"] += 1
                case "ident", [name]:
                    counted[str(name)] += 1
                case _:
                    counted[str(node.data)] += 1
    return counted


def operators_of_the_grammar() -> set[str]:
    relations = {f"relation_{name}" for name in ("lt", "le", "gt", "ge", "eq", "ne", "in")}
    arithmetic = {"addition_add", "addition_sub", "multiplication_mul", "multiplication_div", "multiplication_mod"}
    others = {"unary_not", "unary_neg", "conditionalor", "conditionaland", "expr", "member_dot", "member_index"}
    return relations | arithmetic | others | {"list_lit", "map_lit", "literal"}


def test_every_operator_function_method_macro_and_type_has_entries() -> None:
    counted = nodes(entry for _, entry in ENTRIES)
    known = {
        *operators_of_the_grammar(),
        *(f"{name}()" for name in FUNCTIONS),
        *(f".{name}()" for name in (*METHODS, *MACROS)),
        *TYPES,
    }
    assert {name: counted[name] for name in known if not counted[name]} == {}
    assert nodes([Entry("size('a')", "1")]) == {"size()": 1, "primary": 1, "exprlist": 1, "literal": 1}


def test_every_reserved_word_is_refused_as_a_name_and_every_keyword_as_a_field() -> None:
    for word in RESERVED:
        assert is_refused(Entry(f"[1].exists({word}, true)", ERROR), kind=POLICY) is not None
        assert (is_refused(Entry(f"{{'a': 1}}.{word} == 1", ERROR), kind=POLICY) is not None) == (word in KEYWORDS)


WRONG: Final = [
    (Entry("1 + 1", "3"), "2"),
    (Entry("1 + 1", "2u"), "2"),
    (Entry("1 + 1", ERROR), "2"),
    (Entry("1 / 0", "1"), ERROR),
    (Entry("1.0", "1"), "1.0"),
    (Entry("0.0", "-0.0"), "0.0"),
    (Entry("'a'", "b'a'"), "'a'"),
    (Entry("[1]", "[true]"), "[1]"),
    (Entry("{1: 2}", "{1u: 2}"), "{1: 2}"),
    (Entry("type(1)", "uint"), "int"),
    (Entry("timestamp(0)", "timestamp('1970-01-01T00:00:01Z')"), "timestamp('1970-01-01T00:00:00Z')"),
    (Entry("duration('1s')", "duration('1.000001s')"), "duration('1s')"),
]


@pytest.mark.parametrize(("entry", "found"), WRONG, ids=[entry.expression for entry, _ in WRONG])
def test_a_wrong_entry_is_noticed(entry: Entry, found: str) -> None:
    def in_a_group(one: Entry) -> Group:
        return Group(title="wrong", section="Syntax", entries=(one,))

    assert differences_of_ours(in_a_group(entry)) == [(entry.expression, entry.result, found, found)]
    assert differences_of_ours(in_a_group(replace(entry, language=found))) == []
    assert compiled(entry.expression) == found


async def test_the_workers_judge_the_corpus_as_it_says_within_their_limits() -> None:
    cases = [
        (Program(kind=group.kind, id=str(number), version=1, expression=text), outcome)
        for number, (group, entry) in enumerate(ENTRIES)
        if entry.refused is None
        for text, outcome in islice(judged_as(entry), 1)
    ]
    async with WorkerEngine(judging_bytes_max=64 * 2**20, spawn=fork_worker) as engine:
        for kind in (POLICY, ACCESS_RULE):
            of_kind = [case for case in cases if case[0].kind == kind]
            programs = [program for program, _ in of_kind]
            verdicts = await engine.judge(programs, variables(kind), log_id=1, timeout_s=DEADLINE_S)
            assert [
                (program.expression, verdict)
                for (program, outcome), verdict in zip(of_kind, verdicts, strict=True)
                if verdict.outcome is not outcome
            ] == []
            assert not [verdict for verdict in verdicts if "memory" in verdict.detail]
        for group, entry in ENTRIES:
            if entry.refused is not None and entry.expression.strip():
                with pytest.raises(PolicyNotCompiledError) as caught:
                    await engine.check(entry.expression, log_id=1, timeout_s=DEADLINE_S, kind=group.kind)
                assert (caught.value.line, caught.value.column) == entry.refused, entry


JUDGED: Final = [entry.expression for _, entry in ENTRIES if entry.refused is None]


def _in_contexts(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return booleans, and what is none, within every operator and macro that takes booleans."""
    macros = st.sampled_from(["all", "exists", "exists_one", "filter", "map"])
    return st.recursive(
        st.one_of(parts.map(lambda text: f"({text}\n)"), st.sampled_from(["true", "false", "1 / 0 > 0"])),
        lambda inner: st.one_of(
            st.builds(lambda a, sign, b: f"({a} {sign} {b})", inner, st.sampled_from(["&&", "||", "==", "!="]), inner),
            st.builds(lambda a, b, c: f"({a} ? {b} : {c})", inner, inner, inner),
            st.builds(lambda a: f"!{a}", inner),
            st.builds(lambda a: f"!!{a}", inner),
            st.builds(lambda a, b, macro: f"[{a}, {b}].{macro}(it, it)", inner, inner, macros),
            st.builds(lambda a, b, macro: f"[{a}, true].{macro}(it, it && {b})", inner, inner, macros),
            st.builds(lambda a, b: f"({a} in [{b}])", inner, inner),
            st.builds(lambda a, b: f"({{'a': {a}}}.a == {b})", inner, inner),
        ),
        max_leaves=6,
    )


@settings(deadline=None, max_examples=150)
@given(_in_contexts(st.sampled_from(JUDGED)))
@example("({1: 'a', true: 'b'}[1]) == 'a' || false")
def test_an_entry_in_any_boolean_context_gives_the_same_compiled_and_interpreted(expression: str) -> None:
    assert compiled(expression) == by_interpreter(expression)
