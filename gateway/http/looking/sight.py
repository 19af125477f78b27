# SPDX-License-Identifier: Apache-2.0
"""
What one caller may see, by the access rules in force.

An object of a catalog is seen by whoever may load it: `table.load`, `view.load`, `function.load`, or `namespace.list`.
Lineage, its data sets, jobs and runs, is seen by whoever may read that (`lineage.load`), and all else that the log has
by whoever may read the log (`log.load`). The contents of payload parts take `inputs.load`, as explanations do.

Each object is judged once; where the rules permit a caller all objects of a kind, one evaluation says so. Else the
objects of a list are judged together (`prepare`): one by one, each would wait for the policy engine. What could not be
judged is not hidden: the request fails, since a list without it would look complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from gateway.commit.gateway import Gateway
from gateway.commit.judgement import HAVE_UUID, JudgedRequest, Judgement
from gateway.commit.known_uuids import upstream_uuid
from gateway.control.plane import ControlState
from gateway.errors import BadRequestError
from gateway.identifiers import Target
from gateway.identity import Principal
from gateway.policy.access import Access
from gateway.policy.variables import CommitView, RequestView
from ledger.errors import FormatError
from ledger.format.event import parse_key
from ledger.format.events import CommitDecision

SEEN_BY: Final = {
    "table": "table.load",
    "view": "view.load",
    "function": "function.load",
    "namespace": "namespace.list",
}
"""What a caller must be permitted on an object to see what is told of it, by the object's kind."""
LINEAGE_KINDS: Final = frozenset({"dataset", "pipeline", "run", "lineage"})
"""Kinds of keys that lineage alone has."""
COLUMN: Final = "column"
"""A key of a column begins with the key of what it is a column of."""
WITH_OBJECT: Final = frozenset({"commit", "purge", "scan", "detection", "finding", "alert", "table"})
"""Families of events that are seen with the object that they are about; all others are seen by readers of the log."""

_NAMED_MIN: Final = {"table": 3, "view": 3, "function": 3, "namespace": 2}
"""Segments of a key: alias, one level of a namespace, and the name where there is one."""
_KEYS_KEPT: Final = 4_096
_LOG: Final = "log.load"
_LINEAGE: Final = "lineage.load"
_INPUTS: Final = "inputs.load"
_REVIEW: Final = "table.review"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What `caller` may see by the rules as of `state`. It belongs to one request, or one look of a follower."""

    gateway: Gateway
    state: ControlState
    caller: Principal
    request: RequestView
    _known: dict[tuple[Target, str | None], bool] = field(default_factory=dict, init=False)
    _rights: dict[str, bool] = field(default_factory=dict, init=False)

    async def as_new_as(self, control_index: int) -> Sight:
        """
        Return what the caller may see by rules that are not older than the control entry at an index.

        Raises:
            UnauthorizedError: if the caller's credentials are not in force any more.
            UnavailableError: if the rules cannot be read.
        """
        if control_index <= self.state.as_of:
            return self
        state = await self.gateway.rules_in_force(self.caller)
        return Sight(gateway=self.gateway, state=state, caller=self.caller, request=self.request)

    async def prepare(self, keys: Iterable[str]) -> None:
        """
        Judge the objects that have these event keys together, which takes far less than one by one: what `sees` is then
        asked of them is known. What could not be judged is asked again there.

        Raises:
            UnavailableError: if the engine gave no answer.
        """
        alike: dict[tuple[str, str], list[Target]] = {}
        for target in dict.fromkeys(target_of(_object_of(key)) for key in keys):
            if target is not None and (target, None) not in self._known and target.kind in SEEN_BY:
                alike.setdefault((target.alias, target.kind), []).append(target)
        for (_, kind), targets in alike.items():
            uuid = None if self.state.reads_uuid and kind in HAVE_UUID else ""
            if await self.sees_every(kind):
                continue
            views = [_view(target) for target in targets]
            decided = await self.gateway.judge.decide_reads(self.state, self.caller, views, [uuid] * len(views))
            certain = {Access.PERMITTED: True, Access.DENIED: False}
            self._known.update(
                {(target, None): certain[one] for target, one in zip(targets, decided, strict=True) if one in certain}
            )

    async def has(self, targets: Iterable[Target], uuid: str | None = None) -> bool:
        """Return whether the caller may see an object under all of its names; `uuid` is None if it is not known."""
        return all([await self._has(target, uuid) for target in targets])

    async def sees(self, key: str) -> bool:
        """Return whether the caller may see what has this event key, or key of the graph."""
        kind = key.partition(":")[0]
        if kind in SEEN_BY:
            target = target_of(key)
            # A key that was shortened names nobody in particular: it takes the right to all.
            return await self.sees_every(kind) if target is None else await self._has(target)
        if kind == COLUMN:
            owner = owner_of_column(key)
            return await (self.reads_log() if owner is None else self.sees(owner))
        if kind in LINEAGE_KINDS:
            return await self.reads_lineage()
        return await self.reads_log()

    async def sees_everything(self) -> bool:
        """Return whether the caller may read the log, and load every object of a catalog."""
        return await self.reads_log() and all([await self.sees_every(kind) for kind in SEEN_BY])

    async def sees_all(self, keys: Iterable[str]) -> bool:
        """Return whether the caller may see everything that has these keys."""
        for key in keys:
            if not await self.sees(key):
                return False
        return True

    async def sees_entry(self, type_: str, key: str) -> bool:
        """Return whether the caller may see an entry of this type about this key."""
        if type_.partition(".")[0] in WITH_OBJECT and key.partition(":")[0] in SEEN_BY:
            return await self.sees(key)
        return await self.reads_log()

    async def reads_log(self) -> bool:
        """Return whether the caller may read the log."""
        return await self._may("log", _LOG)

    async def reads_lineage(self) -> bool:
        """Return whether the caller may read lineage."""
        return await self._may("lineage", _LINEAGE)

    async def reads_inputs(self) -> bool:
        """Return whether the caller may read what payload parts of decisions hold."""
        return await self._may("inputs", _INPUTS)

    async def reads_configuration(self, kind: str, thing: str = "") -> bool:
        """Return whether the caller may read the configuration of a kind: of one thing, or all."""
        return await self._may(kind, f"{kind}.inspect", thing)

    async def may_configure(self, kind: str, thing: str) -> bool:
        """Return whether the caller may change one thing of the configuration: what forms are shown goes by it."""
        return await self._may(kind, f"{kind}.configure", thing)

    async def check(self, target: Target) -> None:
        """
        Check that the caller may see an object that the request names; a refusal is counted.

        Raises:
            ForbiddenError: if no rule permits it, or one forbids it.
            UnavailableError: if access could not be judged.
        """
        operation, uuid = SEEN_BY[target.kind], None
        if self.state.reads_uuid and target.kind in HAVE_UUID and target.alias in self.state.catalogs:
            uuid = await upstream_uuid(self.gateway, self.caller.tenant, self.state, target)
        judgement = await self._judged(target, uuid)
        await self.gateway.check_permitted(self.caller, judgement, operation=operation, target=target)

    async def may_review(self, target: Target, uuid: str) -> bool:
        """Return whether the caller is known to be permitted to review findings in a table, which has this uuid."""
        judgement = await self._judged(target, uuid.lower(), operation=_REVIEW)
        return judgement.decision is CommitDecision.APPROVED

    async def check_review(self, target: Target, uuid: str) -> None:
        """
        Check that the caller may review findings in a table, which has this uuid. Raises as `check`.
        """
        judgement = await self._judged(target, uuid.lower(), operation=_REVIEW)
        await self.gateway.check_permitted(self.caller, judgement, operation=_REVIEW, target=target)

    async def _has(self, target: Target, uuid: str | None = None) -> bool:
        key = target, uuid if self.state.reads_uuid else None
        if key not in self._known:
            self._known[key] = await self.sees_every(target.kind) or await self._is_permitted(target, uuid)
        return self._known[key]

    async def _is_permitted(self, target: Target, uuid: str | None) -> bool:
        judgement = await self._judged(target, uuid)
        if judgement.decision is CommitDecision.UNDECIDABLE and self.state.reads_uuid and uuid is None:
            return False  # its uuid stays unknown, so what rests on that is not shown
        return await self._permitted(judgement, SEEN_BY[target.kind], target)

    async def _judged(self, target: Target, uuid: str | None, *, operation: str | None = None) -> Judgement:
        asked = SEEN_BY[target.kind] if operation is None else operation
        return await self.gateway.judge.read(
            self.state, self.caller, target, operation=asked, request=lambda: self.request, uuid=uuid
        )

    async def sees_every(self, kind: str) -> bool:
        operation = SEEN_BY[kind]
        if operation not in self._rights:
            self._rights[operation] = await self.gateway.judge.permits_every(
                self.state, self.caller, operation=operation
            )
        return self._rights[operation]

    async def _may(self, kind: str, operation: str, name: str = "") -> bool:
        right = f"{operation} {name}" if name else operation
        if right not in self._rights:
            view = CommitView(catalog="", namespace=(), name=name, kind=kind, operation=operation)
            judged = JudgedRequest(commit=view, principal=self.caller, request=self.request)
            judgement = await self.gateway.judge.access(self.state, judged)
            self._rights[right] = await self._permitted(judgement, operation, None)
        return self._rights[right]

    async def _permitted(self, judgement: Judgement, operation: str, target: Target | None) -> bool:
        if judgement.decision is CommitDecision.UNDECIDABLE:
            await self.gateway.check_permitted(self.caller, judgement, operation=operation, target=target)
        return judgement.decision is CommitDecision.APPROVED


def _view(target: Target) -> CommitView:
    """Return the read by which an object is seen, as rules see it."""
    return CommitView(
        catalog=target.alias,
        namespace=target.namespace,
        name=target.name or "",
        kind=target.kind,
        operation=SEEN_BY[target.kind],
    )


@lru_cache(maxsize=_KEYS_KEPT)
def target_of(key: str) -> Target | None:
    """
    Return the object of a catalog that has this key; None if it is the key of something else, or was shortened.
    """
    try:
        kind, segments = parse_key(key)
        if len(segments) < _NAMED_MIN.get(kind, len(segments) + 1):
            return None
        if kind == "namespace":
            return Target(alias=segments[0], namespace=segments[1:])
        return Target(
            alias=segments[0],
            namespace=segments[1:-1],
            name=segments[-1],
            is_view=kind == "view",
            is_function=kind == "function",
        )
    except (FormatError, BadRequestError):
        return None


def _object_of(key: str) -> str:
    """Return the key of what a column belongs to; any other key as it is."""
    return (owner_of_column(key) or key) if key.startswith(f"{COLUMN}:") else key


def owner_of_column(key: str) -> str | None:
    """
    Return the key of what a column, given by its key, is a column of; None if its key was shortened.
    """
    try:
        _, segments = parse_key(key)
    except FormatError:
        return None
    return segments[0]
