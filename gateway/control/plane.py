# SPDX-License-Identifier: Apache-2.0
"""
What is in force: the control plane of one tenant, folded from its log.

Guarantee: `ControlPlane.current` and `current_for` return the state as of a control index that is at least the head's
at the time of the call: it includes every change that was durable before the call, whichever process made it. A control
entry of an unknown type or version is an error (503): without it a retired policy might be applied, and an old process
must not fail open. So is one that was changed in the database. Either is logged once, when it is met first.

Heads are read together with what else a request must know (`gateway/fresh/`); entries behind a head that is known are
read only if there are newer ones. `fold` is pure. States are cached by log; the least recently used are dropped, and
folded again when needed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from gateway.control.aggregates import (
    CONTROL_EVENTS,
    AccessRule,
    Aggregate,
    ApiKey,
    Catalog,
    ControlEvent,
    Policy,
    Restriction,
    Tenant,
    TenantSetting,
    aggregate_key,
    evolve,
)
from gateway.control.drafts import PolicyDraft, RestrictionDraft
from gateway.database import outage_as_unavailable
from gateway.errors import UnavailableError
from gateway.fresh import Fresh, Question
from gateway.policy.many import OWN
from ledger.errors import BrokenError, Fault, FormatError, NoSuchLogError
from ledger.format import canonical
from ledger.format.aggregates import key_of
from ledger.format.canonical import Json
from ledger.format.entry import Entry, parse_entry
from ledger.format.events import EVENTS, from_data
from ledger.format.merkle import leaf_hash
from ledger.format.sequence import NO_CONTROL
from ledger.store.log_store import LendConnection
from ledger.store.queries import load_queries
from ledger.store.read import QUERIES

PAGE: Final = 500
"""Control entries fetched at a time: at most 32 MiB in memory, usually a few hundred KiB."""
STATES_MAX: Final = 1_000
OVER_KEPT: Final = timedelta(days=1)
"""How long a policy is kept after the time that ends it: whoever judged before that time had a clock of its own."""
READ_TIMEOUT_S: Final = 10.0

_QUERIES: Final = load_queries("gateway", "control.sql")
_UNREADABLE: Final = "what is in force cannot be read from the log: nothing can be judged"
BROKEN: Final = (
    "what is in force cannot be read from the log, which was changed in the database: nothing is judged until it is as "
    "it was; the gateway's own log says more"
)

_log = logging.getLogger(__name__)

A = TypeVar("A", bound=Aggregate)


class ControlUnreadableError(UnavailableError):
    """The control plane of a log cannot be folded, and no wait helps: nothing is judged until somebody acts."""


class ControlUnknownError(ControlUnreadableError):
    """The control plane has an entry of a type or version that this process does not know: a newer one must serve."""


class ControlBrokenError(ControlUnreadableError):
    """The control plane has an entry that was changed in the database, or lacks one; its cause says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlState:
    """
    What is in force as of control entry `as_of` (`NO_CONTROL` before the first), each kind by id.

    `policy_set` is the SHA-256 (hex) of the canonical list of [type, id, version] of the policies and access rules in
    force, sorted (docs/formats.md, "Hashes").

    Policies may come into force, and end, at a time, without any entry then: whoever judges by `policies` and
    `policy_set` takes the state `at` the time that is recorded with the judgement. `newest_policies` are the newest
    versions, in force or not yet, and of those that end at a time the version that ends them, for a day after it;
    `drafts` and `restriction_drafts` are in force never.
    """

    as_of: int
    policies: Mapping[str, Policy]
    newest_policies: Mapping[str, Policy]
    drafts: Mapping[str, PolicyDraft]
    restrictions: Mapping[str, Restriction]
    restriction_drafts: Mapping[str, RestrictionDraft]
    access_rules: Mapping[str, AccessRule]
    catalogs: Mapping[str, Catalog]
    keys: Mapping[str, ApiKey]
    settings: Mapping[str, TenantSetting]
    tenants: Mapping[str, Tenant]
    policy_set: str
    asks_each_check: bool = False
    """Whether an access rule in force is asked about each check of a request."""
    reads_uuid: bool = False
    """Whether an access rule in force may read the uuid of a table or view."""
    reads_names: bool = False
    """Whether an access rule in force may read that, or a name."""
    reads_operation: bool = False
    """Whether an access rule in force may tell reads of one kind of object from each other."""
    times: tuple[datetime, ...] = ()
    """When policies come into force, or end, by time alone, in order."""
    _at: dict[datetime, ControlState] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The states from each of `times` on, made when they are needed first."""

    @staticmethod
    def empty() -> ControlState:
        """Return the state of a log without control entries: nothing is permitted."""
        return _state(NO_CONTROL, ())

    @property
    def key_issuers(self) -> frozenset[str]:
        """Who has issued keys that are in force, by actor."""
        return frozenset(key.issuer for key in self.keys.values() if key.issuer is not None)

    def at(self, moment: datetime) -> ControlState:
        """
        Return what these entries have put in force at a time.
        """
        if not self.times or moment < self.times[0]:
            return self
        since = self.times[bisect_right(self.times, moment) - 1]
        if (state := self._at.get(since)) is None:
            state = self._at[since] = _in_force_at(self, since)
        return state


def fold(state: ControlState, entries: Iterable[Entry]) -> ControlState:
    """
    Return what is in force after `entries`, the control entries after `state.as_of` in order.

    Raises:
        ControlUnknownError: at an unknown type or version.
        FormatError: at an entry that does not follow, or is malformed; that is corruption.
    """
    kinds = (
        state.newest_policies,
        state.drafts,
        state.restrictions,
        state.restriction_drafts,
        state.access_rules,
        state.catalogs,
        state.keys,
        state.settings,
        state.tenants,
    )
    in_force: dict[str, Aggregate] = {
        aggregate_key(type(aggregate), aggregate.id): aggregate for kind in kinds for aggregate in kind.values()
    }
    as_of = state.as_of
    ending = {key: one.active_from for key, one in in_force.items() if isinstance(one, Policy) and one.retired}
    for entry in entries:
        if entry.index <= as_of:
            raise FormatError("control entries", expected=f"an index behind {as_of}", found=entry.index)
        aggregate = evolve(in_force.get(entry.key), parse_control_event(entry))
        if aggregate.retired and not _ends_at_a_time(aggregate):
            del in_force[entry.key]
            ending.pop(entry.key, None)
        else:
            in_force[entry.key] = aggregate
            if isinstance(aggregate, Policy) and aggregate.retired:
                ending[entry.key] = aggregate.active_from
        for key in [key for key, end in ending.items() if end is not None and end + OVER_KEPT <= entry.recorded_at]:
            del in_force[key], ending[key]
        as_of = entry.index
    return _state(as_of, in_force.values())


def entries_of(rows: Iterable[tuple[int, bytes, bytes]]) -> Iterator[Entry]:
    """
    Yield the entries of rows of the log: index, entry, leaf hash.

    An entry that somebody has changed in the database is never in force. Whether its leaf hash was changed with it
    takes the tree, and is told by `lakeproof ledger verify`.

    Raises:
        BrokenError: at an entry that does not have its leaf hash; carries its index.
        FormatError: at one that is no entry.
    """
    for index, entry, leaf in rows:
        if (found := leaf_hash(bytes(entry))) != bytes(leaf):
            raise BrokenError(
                Fault.DERIVED,
                where="ledger.entries",
                expected=f"an entry with the leaf hash {bytes(leaf).hex()}",
                found=found.hex(),
                index=index,
            )
        yield parse_entry(bytes(entry))


def parse_control_event(entry: Entry) -> ControlEvent:
    """
    Return the event of a control entry.

    Raises:
        ControlUnknownError: if its type or version is unknown.
        FormatError: if its data or its key is malformed.
    """
    cls = EVENTS.get((entry.type, entry.version))
    if cls is None or not issubclass(cls, CONTROL_EVENTS):
        raise ControlUnknownError(
            f"entry {entry.index} of {entry.log} is a {entry.type} of version {entry.version}, which this process does "
            "not know: a newer one must serve"
        )
    event = from_data(cls, entry.data)
    if key_of(event) != entry.key:
        raise FormatError(f"key of entry {entry.index}", expected=key_of(event), found=entry.key)
    return event


class AsksFresh(Protocol):
    """What reads heads for the control plane (`gateway.fresh.FreshReads`)."""

    async def ask(self, question: Question) -> Fresh:
        """Return the answer to `question`, read after this call."""


class LentHeads:
    """
    Reads heads and identities on connections that are lent, one by one, each within `timeout_s`. It reads no tables.
    """

    def __init__(self, lend: LendConnection, *, timeout_s: float = READ_TIMEOUT_S) -> None:
        self._lend = lend
        self._timeout_s = timeout_s

    async def ask(self, question: Question) -> Fresh:
        """
        Return the head, and the identity, that `question` asks for.

        Raises:
            UnavailableError: if the database cannot be reached, or refuses.
        """
        query = "control_index" if question.actor is None else "control_index_and_identity"
        parameters = {"log_id": question.log_id, "actor": question.actor}
        try:
            with outage_as_unavailable(_UNREADABLE):
                async with asyncio.timeout(self._timeout_s), self._lend() as connection:
                    row = await (await connection.execute(_QUERIES[query], parameters)).fetchone()
        except TimeoutError as error:
            raise UnavailableError(_UNREADABLE) from error
        if row is None:
            return Fresh()
        control_index, *identity = row
        return Fresh(control_index=control_index, identity=identity[0] if identity else None)


class ControlPlane:
    """
    The states of all tenants, each brought up to date whenever it is needed.

    `lend` lends connections of the gateway's role, which may read heads and control entries of every log. Heads are
    read by `fresh`, without it on connections that are lent. That a log cannot be read is logged once, but where
    `logs_unreadable` is False: whoever looks at an installation says so in words of their own.
    """

    def __init__(
        self,
        lend: LendConnection,
        fresh: AsksFresh | None = None,
        *,
        states_max: int = STATES_MAX,
        timeout_s: float = READ_TIMEOUT_S,
        logs_unreadable: bool = True,
    ) -> None:
        self._lend = lend
        self._logs_unreadable = logs_unreadable
        self._fresh = fresh or LentHeads(lend, timeout_s=timeout_s)
        self._states_max = states_max
        self._timeout_s = timeout_s
        self._slots: OrderedDict[int, _Slot] = OrderedDict()

    async def current(self, log_id: int) -> ControlState:
        """
        Return what is in force in the log now. Reads the head, and the control entries since the last call.

        Raises:
            ControlUnknownError: if an entry is of an unknown type or version.
            ControlBrokenError: if what is stored is corrupt, or was changed.
            UnavailableError: if the log cannot be read.
            NoSuchLogError: if there is no such log.
        """
        state, _ = await self.current_for(log_id, Question(log_id=log_id))
        return state

    def known(self, log_id: int) -> ControlState | None:
        """Return what was in force in the log when it was last read, which may be long ago; None: it never was."""
        slot = self._slots.get(log_id)
        return None if slot is None else slot.state

    async def current_for(self, log_id: int, question: Question) -> tuple[ControlState, Fresh]:
        """
        Return what is in force in the log now, and the answer to `question`, which is about this log.

        Both are of the same moment, or the state is of a later one. Raises as `current`.
        """
        # Every caller asks for the head itself: the result of an earlier read may lack changes that were durable before
        # this call. Only the reading of entries is shared.
        fresh = await self._fresh.ask(question)
        if fresh.control_index is None:
            raise NoSuchLogError(f"log {log_id}: expected a head, found none")
        slot = self._slot(log_id)
        if slot.state.as_of < fresh.control_index:
            await self._bring_up(slot, log_id, fresh.control_index)
        return slot.state, fresh

    async def _bring_up(self, slot: _Slot, log_id: int, control_index: int) -> None:
        """Have the slot's state as of a control index that was read from the head, or a later one."""
        try:
            with outage_as_unavailable(_UNREADABLE):
                async with asyncio.timeout(self._timeout_s), slot.catching_up:
                    if slot.state.as_of < control_index:
                        await self._catch_up(slot, log_id, control_index)
        except TimeoutError as error:
            raise UnavailableError(_UNREADABLE) from error
        except (BrokenError, FormatError) as error:
            # Who may know what the entry holds cannot be judged without it: clients are not told.
            self._say_once(slot, logging.ERROR, f"nothing is judged by log {log_id}, which was changed: {error}")
            raise ControlBrokenError(BROKEN) from error
        except ControlUnknownError as error:
            self._say_once(slot, logging.WARNING, f"nothing is judged by log {log_id}: {error}")
            raise
        slot.said = ""

    def _say_once(self, slot: _Slot, level: int, text: str) -> None:
        if self._logs_unreadable and slot.said != text:
            slot.said = text
            _log.log(level, "%s", text)

    def _slot(self, log_id: int) -> _Slot:
        slot = self._slots.get(log_id)
        if slot is None:
            slot = self._slots[log_id] = _Slot()
            if len(self._slots) > self._states_max:
                self._slots.popitem(last=False)
        else:
            self._slots.move_to_end(log_id)
        return slot

    async def _catch_up(self, slot: _Slot, log_id: int, control_index: int) -> None:
        async with self._lend() as connection:
            # A page that is not full has all that was durable when it was read, so the published state ends with a
            # complete group: rules that were made together come into force together.
            state, full = slot.state, True
            while full:
                bounds = {"log_id": log_id, "after": state.as_of, "limit": PAGE}
                rows = await (await connection.execute(QUERIES["control_leaves"], bounds)).fetchall()
                state = fold(state, entries_of(rows))
                full = len(rows) == PAGE
        if state.as_of < control_index:
            raise BrokenError(
                Fault.HEAD,
                where=f"control entries of log {log_id}",
                expected=f"entries up to the head's control index {control_index}",
                found=f"none behind {state.as_of}",
            )
        slot.state = state


@dataclass(slots=True, eq=False)
class _Slot:
    """One log's state. Any task may read `state`; only the holder of `lock` replaces it."""

    state: ControlState = field(default_factory=ControlState.empty)
    catching_up: asyncio.Lock = field(default_factory=asyncio.Lock)
    said: str = ""
    """Why it cannot be brought up to date, as it was logged last."""


def _state(as_of: int, in_force: Iterable[Aggregate]) -> ControlState:
    aggregates = tuple(in_force)
    newest, access_rules = _by_id(Policy, aggregates), _by_id(AccessRule, aggregates)
    times = tuple(sorted({moment for policy in newest.values() for moment in _times(policy)}))
    policies = _policies_at(newest, None) if times else newest
    judged = [rule.judged() for rule in access_rules.values()]
    return ControlState(
        as_of=as_of,
        policies=policies,
        newest_policies=newest,
        drafts=_by_id(PolicyDraft, aggregates),
        restrictions=_by_id(Restriction, aggregates),
        restriction_drafts=_by_id(RestrictionDraft, aggregates),
        access_rules=access_rules,
        catalogs=_by_id(Catalog, aggregates),
        keys=_by_id(ApiKey, aggregates),
        settings=_by_id(TenantSetting, aggregates),
        tenants=_by_id(Tenant, aggregates),
        policy_set=_digest(policies, access_rules),
        times=times,
        asks_each_check=any(rule.asks_each_check for rule in judged),
        reads_uuid=any(rule.may_read("uuid") for rule in judged),
        reads_names=any(rule.may_read(*OWN) for rule in judged),
        reads_operation=any(rule.may_read("op") for rule in judged),
    )


def _in_force_at(state: ControlState, moment: datetime) -> ControlState:
    """Return the state in which the policies of a time are in force. It knows no other times: those of `state` do."""
    policies = _policies_at(state.newest_policies, moment)
    return replace(state, policies=policies, policy_set=_digest(policies, state.access_rules), times=())


def _policies_at(newest: Mapping[str, Policy], moment: datetime | None) -> Mapping[str, Policy]:
    """Return the policies in force at a time, in order of creation; None: before all times."""
    at = datetime.min.replace(tzinfo=UTC) if moment is None else moment
    found = ((id_, policy.at(at)) for id_, policy in newest.items())
    return MappingProxyType({id_: policy for id_, policy in found if policy is not None})


def _ends_at_a_time(aggregate: Aggregate) -> bool:
    """Return whether it is a policy that is in force until a time, which no entry will tell."""
    return isinstance(aggregate, Policy) and aggregate.active_from is not None


def _times(policy: Policy | None) -> Iterator[datetime]:
    """Yield when the versions of a policy come into force, and it ends, by time alone."""
    while policy is not None and policy.active_from is not None:
        yield policy.active_from
        policy = policy.before


def _digest(policies: Mapping[str, Policy], access_rules: Mapping[str, AccessRule]) -> str:
    rules: tuple[Policy | AccessRule, ...] = (*policies.values(), *access_rules.values())
    judges: list[Json] = [[kind, id_, version] for kind, id_, version in sorted(map(_reference, rules))]
    return hashlib.sha256(canonical.encode(judges)).hexdigest()


def _reference(rule: Policy | AccessRule) -> tuple[str, str, int]:
    return rule.KIND, rule.id, rule.version


def _by_id(cls: type[A], aggregates: Iterable[Aggregate]) -> Mapping[str, A]:
    """Return the aggregates of one class in order of creation; read-only, since it is shared."""
    return MappingProxyType({aggregate.id: aggregate for aggregate in aggregates if isinstance(aggregate, cls)})
