# SPDX-License-Identifier: Apache-2.0
"""
Every kind of request that access rules judge, with all that a request of it can be.

A scene is an operation with what decides which values go together: whether a commit is on `main`, what it does to that
branch, whether the catalog has branches of its own, what a key would grant beyond its issuer's rights. Within a scene
the unknowns do not depend on each other.

Guarantee: every request of a tenant is one of a scene, for the aliases in force. Names can be any text without control
characters, roles are those that can be given, actors 32 hexadecimal digits. Requests that a scene makes are judged by
the functions that judge requests (`request_of`); what they would be refused for otherwise is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from gateway.asking.exact.actions import (
    ADD_SNAPSHOT,
    ADDED,
    OF_TABLES,
    OF_VIEWS,
    REMOVE_REF,
    SET_REF,
    WITHIN_REFS,
    WithActions,
    updates_of,
)
from gateway.asking.exact.conditions import View
from gateway.asking.exact.lists import Granting
from gateway.asking.exact.solving import Unknowns, Values
from gateway.asking.exact.texts import Anything, Below, Language, Levels, Of
from gateway.asking.requests import OPERATIONS, WITHOUT_ID
from gateway.commit.judgement import HAVE_UUID
from gateway.policy.access import (
    CONTENT_TYPES,
    MAIN,
    NO_CONTENT,
    UNKNOWN,
    AccessRequest,
    Grant,
    access_actions,
    operation_of,
)
from gateway.policy.checks import OF_REFERENCES, Check, units_of
from gateway.policy.variables import CommitView, PrincipalView
from projections.name_patterns import DOT_WITHIN

_HEX: Final = "0123456789abcdef"
ACTORS: Final = Of(_HEX, _HEX, 32)
_UUIDS: Final = Anything(is_lower=True)
_WITH_UPDATES: Final = frozenset({"table.create", "table.commit", "view.create", "view.replace"})
_MOVING: Final = frozenset({"table.create", "table.commit"})
_ISSUES_KEYS: Final = "key.configure"
_OTHER: Final = "other"
_ELSEWHERE: Final = 2**40
"""The id of a snapshot that the updates do not add."""
WHOLE: Final = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """
    A kind of request. `move` is what it does to the branch `main` or another one (`is_main`), as in `checks.py`; empty
    if it has no updates of a table. `branched`: the catalog has branches of its own (None: it does not say which).
    `has_uuid`: it is about something with one (None: it is not known). `beyond` are the fields of a grant that are more
    than the issuer has, None if nothing is granted.
    """

    kind: str
    verb: str
    move: str = ""
    is_main: bool = True
    branched: bool | None = False
    has_uuid: bool | None = False
    beyond: frozenset[str] | None = None
    aliases: tuple[str, ...] = ()
    is_top: bool = False

    @property
    def operation(self) -> str:
        """The operation, as records of the log name it."""
        return f"{self.kind}.{self.verb}"

    def unknowns(self) -> Unknowns:
        """Return what there can be."""
        texts: dict[str, Language | tuple[str, ...]] = {"path": self._paths(), "actor": ACTORS}
        if self.kind in CONTENT_TYPES:
            texts["catalog"] = self.aliases
        if self.move and not self.is_main:
            texts["ref"] = Anything(but=MAIN)
        if self.branched:
            texts["branch"] = Anything()
        if self.has_uuid:
            texts["uuid"] = _UUIDS
        granting = None
        if self.beyond is not None:
            texts["identity"] = Anything()
            granting = Granting.BEYOND if "roles" in self.beyond else Granting.WITHIN
        return Unknowns(texts=texts, actions=self._actions(), granting=granting)

    def _paths(self) -> Language | tuple[str, ...]:
        if self.kind in NO_CONTENT:
            root = NO_CONTENT[self.kind][1]
            return (root,) if self.is_top else Below(root)
        if self.is_top:
            return ("",)
        return Levels(
            1 if self.kind == "namespace" else 2, here=self.branched is not False and self.kind != "namespace"
        )

    def _actions(self) -> WithActions | None:
        if self.operation not in _WITH_UPDATES:
            return None
        own = frozenset(access_actions(self._commit((), "", ())))
        if self.kind == "view":
            return WithActions(fixed=own, possible=OF_VIEWS)
        match self.move, self.is_main:
            case "ASSIGN", True:
                return WithActions(fixed=own | {SET_REF}, possible=WITHIN_REFS)
            case "ASSIGN_AND_COMMIT", _:
                return WithActions(fixed=own | {SET_REF}, possible=OF_TABLES, one_of=_OF_ALL_BRANCHES)
            case "CREATE" | "ASSIGN", _:
                return WithActions(fixed=own | {SET_REF}, possible=OF_TABLES)
            case "DELETE", _:
                return WithActions(fixed=own | {REMOVE_REF}, possible=OF_TABLES)
            case "COMMIT", False:
                return WithActions(fixed=own | {SET_REF, ADD_SNAPSHOT}, possible=OF_TABLES)
            case _:
                beside = (*_OF_ALL_BRANCHES, REMOVE_REF, ADD_SNAPSHOT)
                return WithActions(fixed=own, possible=OF_TABLES, beside=beside)

    def _some_actions(self) -> frozenset[str]:
        actions = self._actions()
        return frozenset() if actions is None else actions.find((), ()) or frozenset()

    def whole(self) -> View:
        """Return what rules see of a request as a whole."""
        ref: str | tuple[str] = (MAIN if self.kind == "table" else "",)
        if self.move and not self.is_main:
            ref = "ref"
        return self._view(WHOLE, self._op(), ref)

    def checks(self) -> list[View]:
        """Return what rules see of each of the checks of a request."""
        return [self._of_check(check) for check in self._checks()]

    def _checks(self) -> Sequence[Check]:
        """Return the checks of a request as `checks.py` makes them, of one that is as good as any."""
        request = self.request_of(None)
        ref = _OTHER if self.move and not self.is_main else None
        units = units_of(request)
        return next((unit for unit in units if ref is None or unit.ref == ref), units[0]).checks

    def _of_check(self, check: Check) -> View:
        ref: str | tuple[str] | None = (check.ref or "",)
        if self.kind in CONTENT_TYPES:
            if self.branched is None:
                ref = None
            elif self.branched:
                ref = "branch"
            elif self.move and not self.is_main:
                ref = "ref"
        return self._view(check.op, check.op, ref)

    def _op(self) -> str:
        return operation_of(self._commit((), "", ()))

    def _view(self, key: str, op: str, ref: str | tuple[str] | None) -> View:
        is_of_reference = op in OF_REFERENCES
        content_type = CONTENT_TYPES[self.kind] if self.kind in CONTENT_TYPES else NO_CONTENT[self.kind][0]
        actions = self._actions()
        own = frozenset(access_actions(self._commit((), "", ())))
        possible = own if actions is None else actions.fixed | actions.possible
        uuid: str | tuple[str] | None = "uuid" if self.has_uuid else None if self.has_uuid is None else ("",)
        texts: Mapping[str, str | tuple[str] | None] = {
            "path": ("",) if is_of_reference else "path",
            "ref": ref,
            "actor": "actor",
            "catalog": "catalog" if self.kind in CONTENT_TYPES else ("",),
            "uuid": ("",) if is_of_reference else uuid,
            "identity": ("",) if self.beyond is None else "identity",
        }
        return View(
            key=key,
            op=op,
            content_type="" if is_of_reference else content_type,
            type=content_type if self.kind in NO_CONTENT else "",
            texts=texts,
            actions=frozenset() if is_of_reference else possible,
            open_actions=actions is not None and not is_of_reference,
            may_grant=self.beyond is not None,
        )

    def _commit(self, namespace: tuple[str, ...], name: str, updates: tuple[dict[str, Any], ...]) -> CommitView:
        return CommitView(
            catalog="", namespace=namespace, name=name, kind=self.kind, operation=self.operation, updates=updates
        )

    def request_of(self, values: Values | None, *, retired: str | None = None) -> AccessRequest:
        """Return the request with these values; without any, one with the same checks."""
        texts = {} if values is None else values.texts
        actions = values.actions if values is not None else self._some_actions()
        namespace, name = self._names(texts.get("path"))
        ref = MAIN if self.is_main else texts.get("ref", _OTHER)
        commit = CommitView(
            catalog=texts.get("catalog", ""),
            namespace=namespace,
            name=name,
            kind=self.kind,
            operation=self.operation,
            updates=self._updates(actions, ref),
        )
        identity = texts.get("identity", "")
        is_beyond = self.beyond is not None and "identity" in self.beyond
        lists = None if values is None else values.lists
        principal = PrincipalView(
            actor=texts.get("actor", "0" * 32),
            source="api_key",
            sub=f"not {identity}" if is_beyond else identity,
            roles=() if lists is None else lists.roles,
        )
        granted = () if lists is None or self.beyond is None else lists.granted
        branch = None
        if self.kind in CONTENT_TYPES and self.branched is not False:
            branch = UNKNOWN if self.branched is None else texts.get("branch", MAIN)
        return AccessRequest(
            commit=commit,
            principal=principal,
            grant=Grant(identity=identity, roles=granted),
            retired=retired,
            branch=branch,
            refs=frozenset() if self.move == "CREATE" else frozenset({ref}),
            uuid=None if self.has_uuid is None else texts.get("uuid", ""),
        )

    def _names(self, path: str | None) -> tuple[tuple[str, ...], str]:
        if self.kind in NO_CONTENT:
            root = NO_CONTENT[self.kind][1]
            return (), "" if path is None else path.removeprefix(root).removeprefix(".")
        names = tuple(one.replace(DOT_WITHIN, ".") for one in path.split(".")) if path else ()
        return (names, "") if self.kind == "namespace" else (names[:-1], names[-1] if names else "")

    def _updates(self, actions: frozenset[str], ref: str) -> tuple[dict[str, Any], ...]:
        updates = updates_of(actions)
        if not self.move:
            return tuple(updates)
        # Other branches may be set and removed by the same commit, which are judged by themselves.
        other, another = f"{ref}-", f"{ref}--"
        sets, removes = other if SET_REF in actions else None, another if REMOVE_REF in actions else None
        snapshot = ADDED if self.move == "COMMIT" else _ELSEWHERE
        if self.move == "DELETE":
            removes = ref
        elif self.move != "COMMIT" or not self.is_main:
            sets = ref
        elif not actions.intersection(_OF_ALL_BRANCHES):
            # Nothing else would concern `main`.
            removes = ref if removes else None
            sets = ref if sets and not removes else sets
        if sets is not None:
            updates.append({"action": "set-snapshot-ref", "ref-name": sets, "snapshot-id": snapshot})
        if removes is not None:
            updates.append({"action": "remove-snapshot-ref", "ref-name": removes})
        return tuple(updates)


_OF_ALL_BRANCHES: Final = tuple(sorted(OF_TABLES - WITHIN_REFS))
"""Actions that change the table on every branch, and so on `main`."""


def every_scene(aliases: Sequence[str], branched: Sequence[str], *, by_checks: bool, by_uuid: bool) -> Iterator[Scene]:
    """
    Yield every scene for the aliases in force, of which `branched` may be those of a Nessie.

    Without `by_checks` no rule is asked about each check, without `by_uuid` none reads `uuid`.
    """
    for kind, verbs in OPERATIONS.items():
        for verb in verbs:
            scene = Scene(kind=kind, verb=verb)
            if kind in CONTENT_TYPES:
                yield from _of_content(scene, tuple(aliases), tuple(branched), by_checks=by_checks, by_uuid=by_uuid)
                continue
            for is_top in (True,) if kind in WITHOUT_ID else (True, False):
                yield replace(scene, is_top=is_top)
                if scene.operation == _ISSUES_KEYS:
                    for fields in product((True, False), repeat=2):
                        beyond = frozenset(
                            name for name, is_in in zip(("identity", "roles"), fields, strict=True) if is_in
                        )
                        yield replace(scene, is_top=is_top, beyond=beyond)


def _of_content(
    scene: Scene, aliases: tuple[str, ...], branched: tuple[str, ...], *, by_checks: bool, by_uuid: bool
) -> Iterator[Scene]:
    moves: Sequence[tuple[str, bool]] = [("", True)]
    if scene.operation in _MOVING:
        moves = [("COMMIT", True), ("ASSIGN", True), ("ASSIGN", False), ("DELETE", False)]
        if by_checks:
            moves = [*moves, ("ASSIGN_AND_COMMIT", True), ("COMMIT", False), ("CREATE", False)]
    has_one = scene.kind in HAVE_UUID and by_uuid
    # Of one that is created there is none; of others there may be none, or it is not known.
    uuids: Sequence[bool | None] = (False,) if not has_one or scene.verb == "create" else (True, False, None)
    branches: Sequence[bool | None] = (False, True, None) if by_checks and branched else (False,)
    tops = (True, False) if scene.operation == "namespace.list" else (False,)
    for (move, is_main), has_uuid, of_branches, is_top in product(moves, uuids, branches, tops):
        of = aliases if of_branches is False else branched
        yield replace(
            scene, move=move, is_main=is_main, has_uuid=has_uuid, branched=of_branches, aliases=of, is_top=is_top
        )
