# SPDX-License-Identifier: Apache-2.0
"""
What is proven about access rules agrees with the engine: on every request of a closed space, and on each that is found.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import product
from typing import Any, Final, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.asking.exact import questions
from gateway.asking.exact.budget import Budget, OverBudgetError
from gateway.asking.exact.conditions import opposite
from gateway.asking.exact.deciding import Decided, Deciding, may_cover
from gateway.asking.exact.questions import Rules, Witness, at_place, checks_of, read_rules
from gateway.asking.exact.scenes import Scene, every_scene
from gateway.asking.exact.texts import Anything, Below, Language, Levels, Of, Test, find, is_as_wanted, is_of
from gateway.policy.access import EACH_CHECK, VOCABULARY, JudgedRule, speaks
from gateway.policy.checks import may_permit
from gateway.policy.engine import Outcome
from ledger.format.events import Effect
from testkit.gateway.rule_judges import ALIASES, Asked, OwnJudges, closed_space

T = TypeVar("T")

JUDGES: Final = OwnJudges()
SPACE: Final = closed_space()
SCENES: Final = list(every_scene(ALIASES, (), by_checks=True, by_uuid=False))
ALLOW, DENY, ERROR = Outcome.ALLOW, Outcome.DENY, Outcome.ERROR

ATOMS: Final = (
    *("op == 'READ_ENTITY_VALUE'", "op.startsWith('UPDATE_')", "op in ['DELETE_ENTITY', 'CREATE_ENTITY']"),
    *("op == 'COMMIT_CHANGE_AGAINST_REFERENCE'", "op.endsWith('_REFERENCE')", "contentType == 'ICEBERG_TABLE'"),
    *("contentType == 'NAMESPACE'", "type == 'CONFIG_KEY'", "api.apiVersion == 1", "type != ''"),
    *("path == 'a.b'", "path.startsWith('a')", "path.startsWith('a.')", "path.endsWith('b')", "path.contains('b.')"),
    *("path in ['a.b', 'b.a', 'x.y']", "path > 'b'", "size(path) > 3", "path == ''", "path.startsWith('.config')"),
    *("['a.', 'b.'].exists(p, path.startsWith(p))", "catalog == 'lake'", "catalog != 'far'", "catalog == 'moon'"),
    *("'a' in roles", "'b' in roles", "role == 'b'", "role == 'ab'", "roles[0] == 'a'", "size(roles) > 1"),
    *("roles.exists(r, r.startsWith('a') && r != 'a')", "roles.all(r, r in ['a', 'b'])", "roles == []", "role < 'b'"),
    *("ref == 'main'", "ref.startsWith('d')", "ref == ''", "'SNAP_OP_APPEND' in actions", "actions == []"),
    *("'META_SET_SNAPSHOT_REF' in actions", "actions.exists(x, x.startsWith('META_'))", "actor == 'nobody'"),
    *("grant.identity == 'b'", "'r' in grant.roles", "grant.roles.all(r, r == 'a')", "grant.identity.endsWith('e')"),
    *("true", "roles[0].startsWith(1)", "api.apiVersion / 0 == 1"),
)


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return expressions made of smaller ones."""
    return st.one_of(
        st.tuples(inner, inner).map(" && ".join),
        st.tuples(inner, inner).map(" && ".join).map(lambda text: f"({text})"),
        st.tuples(inner, inner).map(" || ".join).map(lambda text: f"({text})"),
        inner.map(lambda text: f"!({text})"),
        st.tuples(inner, inner, inner).map(lambda of: f"({of[0]} ? {of[1]} : {of[2]})"),
    )


EXPRESSIONS: Final = st.recursive(st.sampled_from(ATOMS), combined, max_leaves=6)
VOCABULARIES: Final = st.sampled_from((VOCABULARY, VOCABULARY, EACH_CHECK))


@st.composite
def rule_sets(draw: st.DrawFn) -> list[JudgedRule]:
    """A permitting rule, others, and forbidding ones; the first often occurs in the others as a part."""
    first = draw(EXPRESSIONS)
    other = st.one_of(EXPRESSIONS, EXPRESSIONS.map(lambda text: f"({first}) || ({text})"), st.just(first))
    rules = [JudgedRule(id="first", version=1, effect=Effect.PERMIT, expression=first, vocabulary=draw(VOCABULARIES))]
    for number, effect in enumerate((Effect.PERMIT, Effect.PERMIT, Effect.FORBID, Effect.FORBID)):
        made = JudgedRule(
            id=f"{effect.value}-{number}",
            version=1,
            effect=effect,
            expression=draw(other),
            vocabulary=draw(VOCABULARIES),
        )
        rules.append(made)
    return rules


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def read(rules: Sequence[JudgedRule], scenes: Sequence[Scene] = SCENES, *, seconds: float = 600) -> Rules:
    ends_s = time.monotonic() + seconds
    return await read_rules(JUDGES, rules, scenes, log_id=1, timeout_s=60, ends_s=ends_s, clock=time.monotonic)


def permit(expression: str, rule_id: str = "rule", vocabulary: int = VOCABULARY) -> JudgedRule:
    return JudgedRule(id=rule_id, version=1, effect=Effect.PERMIT, expression=expression, vocabulary=vocabulary)


def forbid(expression: str, rule_id: str = "forbid") -> JudgedRule:
    return JudgedRule(id=rule_id, version=1, effect=Effect.FORBID, expression=expression)


class Judged:
    """Rules on every request of the closed space, as the engine judges them."""

    def __init__(self, rules: Sequence[JudgedRule]) -> None:
        self._rules = rules
        wholes = [asked.whole for asked in SPACE]
        checks = [check for asked in SPACE for check in asked.checks]
        self._on = {
            rule.id: iter(JUDGES.outcomes(rule, wholes if rule.vocabulary < EACH_CHECK else checks)) for rule in rules
        }

    def __iter__(self) -> Iterator[tuple[Asked, dict[str, list[Outcome]]]]:
        for asked in SPACE:
            counts = {rule.id: 1 if rule.vocabulary < EACH_CHECK else len(asked.checks) for rule in self._rules}
            yield asked, {rule: [next(self._on[rule]) for _ in range(count)] for rule, count in counts.items()}


def permits(rule: JudgedRule, asked: Asked, outcomes: Sequence[Outcome]) -> list[bool]:
    beyond = asked.request.grant.beyond(asked.request.principal)
    is_heard = speaks(rule, beyond) if rule.vocabulary < EACH_CHECK else may_permit(rule, asked.request, beyond)
    return [outcome is ALLOW and is_heard for outcome in outcomes]


EXAMPLES: Final = 25


@given(rule_sets())
@settings(max_examples=EXAMPLES)
def test_what_is_proven_agrees_with_the_engine_on_a_closed_space_of_requests(rules: list[JudgedRule]) -> None:
    first, permitting = rules[0], [rule for rule in rules[1:] if may_cover(rule, rules[0])]
    forbidding = [rule for rule in rules if rule.effect is Effect.FORBID]
    deciding = Deciding(run(read(rules)))
    held = run(deciding.holds(first))
    assert held.known
    assert held.is_whole
    assert not deciding.rules.opaque_parts(first)
    for witness in held.found:
        assert JUDGES.outcomes(first, [witness.variables()]) == [ALLOW]
    forbidden = run(deciding.forbidden(first, forbidding)) if held.found else False
    covered = run(deciding.covered_together(first, permitting)) if held.found and permitting else False
    assert forbidden is not None
    assert covered is not None
    for asked, outcomes in Judged(rules):
        holds = permits(first, asked, outcomes["first"])
        assert held.found or not any(holds), asked.request
        if isinstance(forbidden, Decided) and any(holds):
            assert any(outcome is not DENY for rule in forbidden.by for outcome in outcomes[rule.id]), asked.request
            if not forbidden.may_fail:
                assert any(ALLOW in outcomes[rule.id] for rule in forbidden.by), asked.request
        if isinstance(covered, Decided):
            by = [permits(rule, asked, outcomes[rule.id]) for rule in covered.by]
            for place, is_held in enumerate(holds):
                assert not is_held or any(each[0 if len(each) == 1 else place] for each in by), asked.request
    if held.found and forbidden is False:
        assert_passes(deciding, first, forbidding)
    if held.found and covered is False:
        assert_is_needed(deciding, first, permitting)


def assert_passes(deciding: Deciding, rule: JudgedRule, forbids: Sequence[JudgedRule]) -> None:
    """Find a request that `rule` permits and none of `forbids` keeps from it, and judge it once more."""
    rules = deciding.rules
    found = run(
        rules.find(
            list(rules.places(rule)),
            lambda place: [rules.holds(rule, place), *(rules.lets_pass(one, place) for one in forbids)],
            lambda witness, of: at_place(witness, of[rule.id], rule) is ALLOW,
            rules.rules,
        )
    ).found[0]
    assert JUDGES.outcomes(rule, [found.variables()]) == [ALLOW]
    for one in forbids:
        rows = [found.whole] if one.vocabulary < EACH_CHECK else list(found.checks.values())
        assert found.request.retired == one.id or set(JUDGES.outcomes(one, rows)) == {DENY}


def assert_is_needed(deciding: Deciding, rule: JudgedRule, others: Sequence[JudgedRule]) -> None:
    """Find a request that `rule` permits and none of `others` does, and judge it once more."""
    rules = deciding.rules
    found = run(
        rules.find(
            list(rules.places(rule)),
            lambda place: [rules.holds(rule, place), *(opposite(rules.holds(one, place)) for one in others)],
            lambda witness, of: at_place(witness, of[rule.id], rule) is ALLOW,
            rules.rules,
        )
    ).found[0]
    assert JUDGES.outcomes(rule, [found.variables()]) == [ALLOW]
    for one in others:
        row = found.whole if one.vocabulary < EACH_CHECK else found.variables()
        asked = Asked(found.request, found.whole, ())
        assert permits(one, asked, JUDGES.outcomes(one, [row])) == [False]


OPERANDS: Final = ("", "a", "b", ".", "ab", "ba", "a.", ".b", "aba", "a.b", "b.a")
LANGUAGES: Final[tuple[Language | tuple[str, ...], ...]] = (
    *(
        Anything(),
        Anything(but="ab"),
        Levels(1),
        Levels(2),
        Levels(0),
        Of("ab", "b"),
        Of("ab", "ab", 3),
        Below("a.b"),
        ("ab", "a.b", ""),
    ),
)
TESTS: Final = st.one_of(
    st.tuples(st.sampled_from(("is", "begins", "ends", "contains", "from")), st.sampled_from(OPERANDS), st.booleans()),
    st.tuples(st.just("long"), st.integers(0, 4), st.booleans()),
)
ALL_TEXTS: Final = ["".join(text) for length in range(6) for text in product("ab.x", repeat=length)]


def budget(steps: int = 10_000_000) -> Budget:
    return Budget(steps=steps, ends_s=time.monotonic() + 600, clock=time.monotonic)


@given(st.sampled_from(LANGUAGES), st.lists(TESTS, max_size=5))
def test_a_text_is_found_exactly_if_there_is_one(language: Language | tuple[str, ...], tests: list[Test]) -> None:
    texts = language if isinstance(language, tuple) else [text for text in ALL_TEXTS if is_of(language, text)]
    found = find(language, tests, budget())
    if found is None:
        assert not [text for text in texts if is_as_wanted(text, tests)]
    else:
        assert is_as_wanted(found, tests)
        assert found in texts if isinstance(language, tuple) else is_of(language, found)


def test_a_search_for_a_text_ends_with_its_budget() -> None:
    tests: list[Test] = [("contains", text, True) for text in ("abab", "baba", "bb", "aab", "abba")]
    tests += [("is", "x", False), ("ends", "x", False), ("long", 40, True)]
    with pytest.raises(OverBudgetError):
        find(Anything(), tests, budget(steps=2_000))
    assert is_as_wanted(str(find(Anything(), tests, budget())), tests)


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("contentType == 'ICEBERG_TABLE' && !path.contains('.')", False),  # a table is in a namespace
        ("contentType == 'NAMESPACE' && !path.contains('.')", True),
        ("path.contains('..') && contentType == 'ICEBERG_VIEW'", False),  # no level is empty
        ("path.startsWith('.') && contentType == 'ICEBERG_TABLE'", False),
        ("path == '' && op == 'READ_CONTENT_KEY'", True),  # the top level is listed
        ("path == '' && op == 'DELETE_ENTITY'", False),
        ("role == 'b' && 'a' in roles", False),  # roles are sorted
        ("role == 'b' && 'c' in roles", True),
        ("role == '' && size(roles) > 0", False),
        ("'two words' in roles", False),  # no such role can be given
        ("roles.exists(r, r.startsWith('x')) && roles.all(r, r.size() < 2) && !('x' in roles)", False),
        ("actor == 'alice'", False),  # actors are pseudonyms
        ("actor.startsWith('0a')", True),
        ("'SNAP_OP_APPEND' in actions && !('META_ADD_SNAPSHOT' in actions)", False),
        ("ref == 'dev' && !('META_SET_SNAPSHOT_REF' in actions) && !('META_REMOVE_SNAPSHOT_REF' in actions)", False),
        ("ref == 'dev' && op == 'READ_ENTITY_VALUE'", False),
        ("ref != '' && contentType == 'ICEBERG_VIEW'", False),
        ("'META_ADD_VIEW_VERSION' in actions && contentType == 'ICEBERG_TABLE'", False),
        ("'CATALOG_DROP_ENTITY' in actions && op != 'DELETE_ENTITY'", False),
        ("grant.identity != '' && contentType != 'CONFIG_KEY'", False),
        ("catalog != '' && type != ''", False),
        ("catalog == 'moon'", False),
        ("roles[2] == 'x'", None),  # nothing is known of a place in the list but the first
        ("path.matches('^a')", None),
        ("path.matches('^a') && op == 'NOTHING'", False),
        ("path.matches('^a') && !path.matches('^a')", False),
        ("path == catalog + '.x'", None),
        ("op == 1 || path.startsWith(1) || path < 1 || path in [1]", False),
        ("path != 1 && role in [1, 'a'] && !(path in [])", True),
    ],
)
def test_which_values_go_together_is_known(expression: str, *, holds: bool | None) -> None:
    rule = permit(expression)
    answer = run(Deciding(run(read([rule]))).holds(rule))
    assert (bool(answer.found) if answer.known else None) is holds


def test_a_rule_about_references_holds_at_the_checks_that_there_are() -> None:
    rules = [
        permit(text, f"r{number}", EACH_CHECK)
        for number, text in enumerate(
            (
                "op == 'CREATE_REFERENCE' && ref == 'dev'",
                "op == 'CREATE_REFERENCE' && ref == 'main'",
                "op == 'DELETE_REFERENCE' && ref == 'main'",
                "op == 'ASSIGN_REFERENCE_TO_HASH' && ref == 'main'",
                "op == 'VIEW_REFERENCE' && path != ''",
                "op == 'LIST_COMMIT_LOG'",
            )
        )
    ]
    deciding = Deciding(run(read(rules)))
    answers = [run(deciding.holds(rule)) for rule in rules]
    assert [bool(answer.found) for answer in answers] == [True, False, False, True, False, False]
    assert all(answer.known for answer in answers)


def test_every_scene_makes_requests_of_itself() -> None:
    """The couplings of scenes are those of the functions that judge requests."""
    scenes = list(every_scene(ALIASES, ALIASES, by_checks=True, by_uuid=True))
    rule = permit("true")
    of_checks = permit("true", "checks", EACH_CHECK)
    rules = run(read([rule, of_checks], scenes))
    deciding = Deciding(rules)
    for one in (rule, of_checks):
        held = run(deciding.holds(one))
        assert held.is_whole
        reached = {(witness.scene, witness.check and witness.check.key) for witness in held.found}
        # A rule that does not name what a key grants, or `type`, does not count there.
        missing = {place.scene for place in rules.places(one)} - {scene for scene, _ in reached}
        assert all(scene.beyond or one.vocabulary == EACH_CHECK for scene in missing)
    for witness in run(deciding.holds(rule)).found:
        views = {view.key: view for view in checks_of(witness.scene)}
        assert {key: (view.op, view.content_type, view.type) for key, view in views.items()} == {
            key: (row["op"], row["contentType"], row["type"]) for key, row in witness.checks.items()
        }


def test_a_forbidding_rule_that_cannot_be_judged_leaves_nothing_to_permit() -> None:
    reads = permit("op == 'READ_ENTITY_VALUE' && 'a' in roles", "reads")
    fails = forbid("op == 'READ_ENTITY_VALUE' && api.apiVersion / 0 == 1", "fails")
    deciding = Deciding(run(read([reads, fails])))
    decided = run(deciding.forbidden(reads, [fails]))
    assert isinstance(decided, Decided)
    assert decided.may_fail
    # It may still be retired, by those whom others permit that.
    retires = permit("op == 'UPDATE_REPOSITORY_CONFIG' && path == '.config.access_rule.fails'", "retires")
    every = forbid("roles[0].startsWith(1)", "fails")
    deciding = Deciding(run(read([retires, every])))
    assert run(deciding.forbidden(retires, [every])) is False
    other = permit("op == 'UPDATE_REPOSITORY_CONFIG' && path == '.config.access_rule.other'", "other")
    deciding = Deciding(run(read([other, every])))
    assert isinstance(run(deciding.forbidden(other, [every])), Decided)


def test_nothing_is_claimed_once_steps_or_time_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = permit("['a', 'b', 'c', 'd', 'e'].all(x, path.contains(x + '.')) || (path > 'a' && path < 'aa')")
    never = permit("path.startsWith('a') && path.endsWith('b') && size(path) < 60 && size(path) > 50 && path < 'a'")
    assert run(Deciding(run(read([never]))).holds(never)).known
    assert not run(Deciding(run(read([never], seconds=-1))).holds(never)).known
    monkeypatch.setattr(questions, "STEPS_MAX", 20)
    for one in (rule, never):
        answer = run(Deciding(run(read([one]))).holds(one))
        assert (list(answer.found), answer.known) == ([], False)


@pytest.mark.parametrize("corrupt", [lambda row: {**row, "roles": []}, lambda row: {**row, "path": "b"}])
def test_a_request_counts_only_if_the_engine_judges_it_so(corrupt: Callable[[Any], Any]) -> None:
    """With an engine that is told other values, nothing is found, and nothing is claimed."""

    class Corrupting(OwnJudges):
        async def judge_rows(self, programs: Any, shared: Any, rows: Any, **how: Any) -> list[str]:
            changed = [corrupt(row) if "roles" in row else row for row in rows]
            return await super().judge_rows(programs, shared, changed, **how)

    rule = permit("'a' in roles && path.startsWith('a')")
    rules = run(
        read_rules(
            Corrupting(), [rule], SCENES, log_id=1, timeout_s=60, ends_s=time.monotonic() + 60, clock=time.monotonic
        )
    )
    answer = run(Deciding(rules).holds(rule))
    assert (list(answer.found), answer.known) == ([], False)


def test_a_witness_says_who_asks_for_what() -> None:
    rule = permit("'a' in roles && path == 'a.b' && op == 'DELETE_ENTITY' && catalog == 'far'")
    witness: Witness = run(Deciding(run(read([rule]))).holds(rule)).found[0]
    assert (witness.request.principal.roles, witness.request.commit.catalog) == (("a",), "far")
    assert witness.request.commit.operation in {"table.drop", "table.unregister", "table.rename_from"}
