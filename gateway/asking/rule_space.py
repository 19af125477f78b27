# SPDX-License-Identifier: Apache-2.0
"""
The requests that access rules are tried on: a finite space of operations, callers, catalogs, names, refs, actions and
uuids.

Operations and content types are all that there are. Of the other dimensions the space has what is in force (roles of
keys, aliases), names that are in the catalogs, and the texts in the rules themselves; so a rule that holds for names
which do not exist yet holds here, too.

Rules before version 3 are tried on a request as a whole, the others on each of its checks (`policy/checks.py`). A point
of the space is one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import TYPE_CHECKING, Final

from gateway.asking.callers import NOBODY, roles_named
from gateway.asking.requests import OPERATIONS, WITHOUT_ID, request_in_words
from gateway.commit.judgement import HAVE_UUID
from gateway.policy.access import (
    CONTENT_TYPES,
    EACH_CHECK,
    NO_CONTENT,
    NOTHING,
    AccessRequest,
    Grant,
    JudgedRule,
    access_activation,
    refs_of,
)
from gateway.policy.checks import ASSIGN, CREATE, DELETE, OF_REFERENCES, Check, check_activation, units_of
from gateway.policy.engine import ACCESS_RULE
from gateway.policy.variables import CommitView, PrincipalView
from gateway.policy.vocabulary import variables_of
from gateway.policy.words import mentions, texts_near

if TYPE_CHECKING:
    from ledger.format.canonical import Json

TEXTS_MAX: Final = 8
"""Texts of one rule for one dimension."""
SOME: Final = "something"
"""A name that nobody has used."""

OPERATION: Final = "operation"
DIMENSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "caller": ("roles", "role", "actor"),
    "catalog": ("catalog",),
    "name": ("path",),
    "ref": ("ref",),
    "actions": ("actions",),
    "uuid": ("uuid",),
}
"""The dimensions after the operation, in the order in which they are tried, each with its variables."""

_NAMES: Final = frozenset(variables_of(ACCESS_RULE))
_MOVES_REFS: Final = "table.commit"
_HAS_ACTIONS: Final = frozenset({"create", "commit", "replace"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """
    A request of the space; `check` is one of its checks, None for the request as a whole.

    `levels` are the names of content, or the id of what is none. `branch` is that of a catalog with branches of its
    own, `moved` the branch of the table that a commit moves.
    """

    kind: str
    verb: str
    grant: Grant = NOTHING
    roles: tuple[str, ...] = ()
    actor: str = NOBODY
    catalog: str = ""
    levels: tuple[str, ...] = ()
    branch: str | None = None
    moved: str | None = None
    actions: tuple[str, ...] = ()
    uuid: str = ""
    check: Check | None = None

    @property
    def operation(self) -> str:
        """The operation, as records of the log name it."""
        return f"{self.kind}.{self.verb}"

    def request(self) -> AccessRequest:
        """Return the request as access rules have it."""
        is_content = self.kind in CONTENT_TYPES
        names = self.levels if is_content and self.kind == "namespace" else self.levels[:-1] if is_content else ()
        last = "" if self.kind == "namespace" else self.levels[-1] if self.levels else ""
        commit = CommitView(
            catalog=self.catalog,
            namespace=names,
            name=last,
            kind=self.kind,
            operation=self.operation,
            updates=() if self.moved is None else ({"action": "set-snapshot-ref", "ref-name": self.moved},),
        )
        caller = PrincipalView(actor=self.actor, source="api_key", roles=self.roles)
        return AccessRequest(commit=commit, principal=caller, grant=self.grant, branch=self.branch, uuid=self.uuid)

    def variables(self) -> dict[str, Json]:
        """Return the variables of access rules."""
        request = self.request()
        if self.check is None:
            found = access_activation(request, ref=refs_of(request.commit)[0])
        else:
            found = check_activation(request, self.check)
        if self.actions and (self.check is None or self.check.op not in OF_REFERENCES):
            found["actions"] = sorted({*self.actions, *(str(action) for action in _listed(found["actions"]))})
        return found

    def as_operation(self, kind: str, verb: str) -> Point:
        """Return another operation on what has the same name; with what it does not have, left out."""
        levels = self.levels
        if kind in CONTENT_TYPES and kind != "namespace":
            levels = levels if len(levels) > 1 else (*(levels or ("n",)), "t")
        return replace(
            self,
            kind=kind,
            verb=verb,
            levels=levels if kind in CONTENT_TYPES else (),
            moved=self.moved if f"{kind}.{verb}" == _MOVES_REFS else None,
            actions=self.actions if verb in _HAS_ACTIONS else (),
            uuid=self.uuid if _has_uuid(kind, verb) else "",
        )

    def each_check(self) -> Iterator[Point]:
        """Yield the same request at each of its checks."""
        for check in units_of(self.request())[0].checks:
            yield replace(self, check=check)

    def as_whole(self) -> Point:
        """Return the request as a whole."""
        return replace(self, check=None)

    def words(self) -> str:
        """Return it in words."""
        return request_in_words(self.request(), self.variables())


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """
    The values of the dimensions: callers are roles with an actor, `names` are levels by alias.
    """

    callers: Sequence[tuple[tuple[str, ...], str]]
    names: Mapping[str, Sequence[tuple[str, ...]]]

    def operations(self, rule: JudgedRule) -> Iterator[Point]:
        """Yield a point for every operation (and check) that `rule` is asked about, with no other dimension yet."""
        grants = tuple(_grants(_texts(rule, "grant")))
        for kind, verbs in OPERATIONS.items():
            for verb in verbs:
                for grant in grants if (kind, verb) == ("key", "configure") else (NOTHING,):
                    levels = ("n", "t") if kind in CONTENT_TYPES else ()
                    point = Point(kind=kind, verb=verb, grant=grant, levels=levels)
                    if rule.vocabulary < EACH_CHECK:
                        yield point
                        continue
                    yield from point.each_check()
                    if point.operation == _MOVES_REFS:
                        yield from (replace(point, check=Check(op, SOME)) for op in (CREATE, ASSIGN, DELETE))

    def widened(self, dimension: str, point: Point, rules: Sequence[JudgedRule]) -> Iterator[Point]:
        """
        Yield a point with each value of one dimension that the space, or a text in one of `rules`, has for it; with one
        value if none of the rules reads it.
        """
        every = self._widened(dimension, point, rules)
        yield from every if reads_any(rules, dimension) else islice(every, 1)

    def _widened(self, dimension: str, point: Point, rules: Sequence[JudgedRule]) -> Iterator[Point]:
        is_content = point.kind in CONTENT_TYPES
        match dimension:
            case "caller":
                yield point
                named = {roles for rule in rules for roles in _role_sets(rule)}
                for roles, actor in dict.fromkeys((*self.callers, *((roles, NOBODY) for roles in sorted(named)))):
                    yield replace(point, roles=roles, actor=actor)
                # The membership of each role is a dimension of its own.
                for role in sorted({role for roles in named for role in roles}):
                    others = tuple(other for other in point.roles if other != role)
                    yield replace(point, roles=others if role in point.roles else (*others, role))
            case "catalog":
                aliases = self.names if self.names or reads_any(rules, "catalog") else (SOME,)
                for alias in aliases if is_content else ("",):
                    yield replace(point, catalog=alias)
            case "name":
                for levels in dict.fromkeys(self._levels(point, rules)):
                    yield replace(point, levels=levels)
            case "ref":
                yield from _at_refs(point, rules)
            case "actions":
                yield from _with_actions(point, rules)
            case "uuid":
                yield from _with_uuids(point, rules)

    def neighbours(self, point: Point, rules: Sequence[JudgedRule]) -> Iterator[Point]:
        """Yield points that differ from `point` in one dimension, by the values that the space and `rules` have."""
        every = Point.each_check if point.check is not None else (lambda one: iter((one,)))
        for kind, verbs in OPERATIONS.items():
            if (kind in CONTENT_TYPES) is (point.kind in CONTENT_TYPES):
                yield from (near for verb in verbs for near in every(point.as_operation(kind, verb)))
        for dimension in DIMENSIONS:
            if reads_any(rules, dimension):
                yield from self._widened(dimension, point, rules)

    def _levels(self, point: Point, rules: Sequence[JudgedRule]) -> Iterator[tuple[str, ...]]:
        texts = [text for rule in rules for text in _texts(rule, "path")]
        if point.kind in NO_CONTENT:
            yield ()
            if point.kind not in WITHOUT_ID:
                root = f"{NO_CONTENT[point.kind][1]}."
                yield from ((text.removeprefix(root),) for text in texts if text.startswith(root) and text != root)
                yield (SOME,)
            return
        if point.kind == "namespace" and point.verb == "list":
            yield ()
        named = self.names.get(point.catalog, ())
        is_namespace = point.kind == "namespace"
        yield from (levels for levels in named if is_namespace or len(levels) > 1)
        for path in dict.fromkeys(_paths(texts)):
            levels = tuple(path.split("."))
            if all(levels) and not path.startswith("."):
                yield levels if is_namespace or len(levels) > 1 else (*levels, "t")
        yield (SOME,) if is_namespace else (SOME, "t")


def reads_any(rules: Sequence[JudgedRule], dimension: str) -> bool:
    """
    Return whether one of `rules` may read a variable of a dimension.
    """
    return any(mentions(rule.expression, DIMENSIONS[dimension]) for rule in rules)


def _paths(texts: Iterable[str]) -> Iterator[str]:
    """Yield paths that have the texts of rules as their beginning, end or whole."""
    known = list(dict.fromkeys(texts))
    for text in known:
        yield text
        yield f"{text}t" if text.endswith(".") else f"{text}.t"
        yield f"n{text}" if text.startswith(".") else f"n.{text}"
    for first, last in product(known[:TEXTS_MAX], repeat=2):
        if first != last:
            yield first + last
            yield f"{first.rstrip('.')}.{last.lstrip('.')}"


def _at_refs(point: Point, rules: Sequence[JudgedRule]) -> Iterator[Point]:
    yield point
    refs = dict.fromkeys(text for rule in rules for text in _texts(rule, "ref"))
    if point.kind not in CONTENT_TYPES:
        return
    named = [ref for text in refs for ref in (text, f"{text}{SOME}")]
    if point.check is not None:
        # Each alias may be a branch of a Nessie, and a branch may be made, moved and removed.
        yield from (replace(point, branch=ref, check=Check(point.check.op, ref)) for ref in (*named, SOME))
    elif point.operation == _MOVES_REFS:
        yield from (replace(point, moved=ref) for ref in (*named, SOME))


def _with_actions(point: Point, rules: Sequence[JudgedRule]) -> Iterator[Point]:
    yield point
    named = dict.fromkeys(text for rule in rules for text in _texts(rule, "actions"))
    if point.kind in CONTENT_TYPES and point.verb in _HAS_ACTIONS and named:
        yield from (replace(point, actions=(action,)) for action in named)
        yield replace(point, actions=tuple(sorted(named)))


def _with_uuids(point: Point, rules: Sequence[JudgedRule]) -> Iterator[Point]:
    yield point
    named = dict.fromkeys(text for rule in rules for text in _texts(rule, "uuid"))
    if _has_uuid(point.kind, point.verb):
        yield from (replace(point, uuid=uuid) for uuid in (*named, SOME))


def _has_uuid(kind: str, verb: str) -> bool:
    return kind in HAVE_UUID and verb != "create"


def _grants(texts: Sequence[str]) -> Iterator[Grant]:
    """Yield what a key may grant: identities and roles with the texts of a rule in them, and others."""
    identities = ("", SOME, *texts, *(f"{SOME}{text}" for text in texts))
    for identity, role in product(identities, ("", SOME, *texts)):
        yield Grant(identity=identity, roles=(role,) if role else ()) if identity or role else NOTHING


def _role_sets(rule: JudgedRule) -> Iterator[tuple[str, ...]]:
    yield ()
    roles = roles_named(rule.expression)[:TEXTS_MAX]
    yield from ((role,) for role in roles)
    if len(roles) > 1:
        yield tuple(sorted(roles))
        yield tuple(sorted(roles, reverse=True))


def _texts(rule: JudgedRule, variable: str) -> tuple[str, ...]:
    """Return the texts in a rule that it seems to compare with a variable."""
    if not mentions(rule.expression, (variable,)):
        return ()
    return tuple(text for text in texts_near(rule.expression, _NAMES).get(variable, ()) if text)[:TEXTS_MAX]


def _listed(value: Json) -> Sequence[Json]:
    return value if isinstance(value, list) else ()
