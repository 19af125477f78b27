# SPDX-License-Identifier: Apache-2.0
"""
Replays recorded decisions with proposed policies: which verdicts would be others, and of what.

Guarantee: it depends on the log, on the metadata that it names, and on the proposal alone. The same range and proposal
give the same three digests, as long as nothing is erased meanwhile, and foreign catalogs still have the same metadata:

- *proposal*: SHA-256 of the canonical list of its policies (id, expression, scope), sorted by id.
- *inputs*: SHA-256 over each decision in order: its leaf hash, then the SHA-256 of the metadata before and after it,
  if the proposal reads them (32 zero bytes where the log names none).
- *verdicts*: SHA-256 over each decision in order: a line of JSON `[index, change, rule, [[id, outcome], …]]`.

Decisions are read in pages. While the worker processes evaluate one page, the next is read. A program that has judged
the same values before is not evaluated again; what it may read is found as in `policy/known_verdicts.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

from gateway.policy.engine import POLICY, Outcome, Verdict
from gateway.policy.scopes import EVERYTHING, Scope, covers, format_scope, has_tag, may_be_among, without_metadata
from gateway.policy.verdicts import parse_verdicts
from gateway.policy.vocabulary import variables_of
from gateway.policy.words import reads
from gateway.replaying.comparing import Change, Compared, Evaluated, compare, needs_proposed
from gateway.replaying.coverage import BranchCounts, Coverage, Taken
from gateway.replaying.evaluating import Case, CaseWorkers
from gateway.replaying.findings import RecordedFindings
from gateway.replaying.page_process import PageProcess
from gateway.replaying.pages import PAGE_ENTRIES
from gateway.replaying.past_metadata import PastMetadata
from gateway.replaying.reading import DecisionReader
from gateway.replaying.recorded import VERDICTS, Decision, File, Lend
from gateway.replaying.variables import Known, Needs, Rebuilder, Unknown, merged, parts_of, view_of
from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.events import CommitDecision
from ledger.format.sealing import Opener
from ledger.format.verification import ProgressCallback

KNOWN_MAX: Final = 100_000
"""Outcomes that are kept, some 40 MB; twice as many for a while, then the older ones are forgotten."""
GROUPS_MAX: Final = 10_000
"""Kinds of changes (change, rule, target, actor) that are told apart; the others are counted together."""
VERDICTS_KEPT: Final = 4_096
ROWS_MAX: Final = 5_000
"""Equal inputs that are recognised as such before anything of them is compared; each holds its variables."""
PREPARED_AT_ONCE: Final = 250
"""Decisions whose metadata is read together."""
NO_FILE: Final = bytes(32)
SIDES: Final = ("table", "result")
"""The variables that say what a table was before the commit, and what it is after it."""
REPORTED: Final = frozenset({Change.WIDENED, Change.NARROWED, Change.FAILED, Change.UNKNOWN})

_Key: TypeAlias = tuple[object, ...]
"""A program, and the digest of each variable that it reads (None: not known)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """A policy that would be in force, in place of the one of the same id if there is one."""

    id: str
    expression: str
    scope: Scope = EVERYTHING

    def shown(self) -> dict[str, Json]:
        """Return what of it can change a verdict."""
        return {"expression": self.expression, "id": self.id, "scope": format_scope(self.scope)}


@dataclass(slots=True)
class Group:
    """Decisions with the same change: how many, and the index of the first."""

    change: Change
    rule: str
    key: str
    path: str
    actor: str
    why: str
    first: int
    count: int = 0


@dataclass(slots=True, kw_only=True)
class Replayed:
    """
    What a replay of entries `first` … `end` - 1 has found. The digests are hex SHA-256 (see the module).

    `groups` are told apart by change, rule, target and actor, in the order of the log; `ungrouped` counts the others.
    `evaluated` is how many programs were evaluated: equal inputs once. `coverage` has the policies of the proposal in
    its order, if it was asked for.
    """

    first: int
    end: int
    proposal: str
    inputs: str = ""
    verdicts: str = ""
    decisions: int = 0
    counts: Counter[Change] = field(default_factory=Counter)
    groups: list[Group] = field(default_factory=list)
    ungrouped: int = 0
    evaluated: int = 0
    coverage: tuple[Coverage, ...] = ()

    @property
    def unknown(self) -> Counter[str]:
        """Why decisions could not be replayed, and how many."""
        found: Counter[str] = Counter()
        for group in self.groups:
            if group.change is Change.UNKNOWN:
                found[group.why] += group.count
        return found


def proposal_bytes(proposal: Sequence[Proposed]) -> bytes:
    """
    Return the canonical JSON of a proposal, of which its digest is.
    """
    shown: list[Json] = [policy.shown() for policy in sorted(proposal, key=lambda one: one.id)]
    return canonical.encode(shown)


@dataclass(frozen=True, slots=True)
class _Program:
    """A proposed policy, and what it may read, in a fixed order."""

    policy: Proposed
    reads: tuple[tuple[str, frozenset[str] | None], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """
    What the proposed policies that apply to some decisions need of them: of each program the key of its outcome, why
    that may stay unknown, and why it may not apply at all; and the variables. Decisions with equal inputs share one.
    """

    keys: tuple[tuple[int, _Key, str, str], ...]
    variables: tuple[Known | Unknown, ...]


NO_ROW: Final = _Row((), ())
_Asked: TypeAlias = tuple[Decision, _Row]


async def replay(
    lend: Lend,
    log_id: int,
    proposal: Sequence[Proposed],
    *,
    first: int,
    end: int,
    opener: Opener,
    past: PastMetadata,
    workers: CaseWorkers,
    progress: ProgressCallback = lambda _done, _of: None,
    page_entries: int = PAGE_ENTRIES,
    beside: PageProcess | None = None,
) -> Replayed:
    """
    Return what `proposal`, whose programs `workers` know in the same order, changes in entries `first` … `end` - 1.

    `page_entries` are read at a time: fewer keep the event loop for a shorter time. Pages are read by the process
    `beside` this one, too, if there is one. Branches are counted if `workers` tell which were taken.

    Raises:
        BrokenError: if an entry or a payload part is corrupt.
        UnavailableError: if the log, a metadata file or the engine cannot be reached.
    """
    replaying = _Replay(proposal, past, RecordedFindings(lend, log_id), workers)
    parts = parts_of(replaying.rebuilder.needs)
    with_files = replaying.rebuilder.reads_files
    reader = DecisionReader(
        lend,
        log_id,
        opener=opener,
        parts=parts,
        with_files=with_files,
        first=first,
        page_entries=page_entries,
        beside=beside,
    )
    found = Replayed(first=first, end=end, proposal=hashlib.sha256(proposal_bytes(proposal)).hexdigest())
    counts = None
    if workers.covers:
        branches = zip(proposal, await workers.branches(), strict=True)
        counts = BranchCounts({policy.id: each for policy, each in branches})
    tally = _Tally(found, frozenset(policy.id for policy in proposal), with_files=with_files, branches=counts)
    waiting: asyncio.Task[None] | None = None
    asked: list[_Asked] = []
    try:
        async for decisions, at in reader.pages(first, end):
            page = await replaying.ask_all(decisions)
            if waiting is not None:
                await waiting
                tally.add(asked, replaying)
            waiting, asked = asyncio.create_task(replaying.evaluate()), page
            await asyncio.sleep(0)  # so that the workers begin
            progress(at - first, end - first)
        if waiting is not None:
            await waiting
            tally.add(asked, replaying)
    finally:
        if waiting is not None and not waiting.done():
            waiting.cancel()
            await asyncio.wait([waiting])
    tally.finish()
    found.evaluated = replaying.evaluated
    return found


class _Replay:
    """The programs of one replay, and the outcomes that are known. Event loop only."""

    def __init__(
        self, proposal: Sequence[Proposed], past: PastMetadata, known: RecordedFindings, workers: CaseWorkers
    ) -> None:
        variables = variables_of(POLICY)
        self._programs = [
            _Program(policy, tuple(sorted(reads(policy.expression, variables).items()))) for policy in proposal
        ]
        needed: list[Needs] = [dict(program.reads) for program in self._programs]
        needed += [needs_of(policy.scope) for policy in proposal]
        self._workers = workers
        self.rebuilder = Rebuilder(past, known, merged(needed))
        self._known: dict[_Key, Evaluated] = {}
        self._older: dict[_Key, Evaluated] = {}
        self._by_sources: dict[tuple[object, ...] | None, _Row] = {}
        self._rows: dict[tuple[object, ...], _Row] = {}
        self._new: dict[_Key, Case] = {}
        self._running: dict[_Key, Case] = {}
        self.evaluated = 0
        self._applying: dict[tuple[str, str], tuple[int, ...]] = {}

    async def ask_all(self, decisions: Sequence[Decision]) -> list[_Asked]:
        """Return what each decision needs; metadata is read for a few at a time: all of theirs is in memory."""
        page: list[_Asked] = []
        for first in range(0, len(decisions), PREPARED_AT_ONCE):
            some = decisions[first : first + PREPARED_AT_ONCE]
            await self.rebuilder.prepare(some)
            page += map(self.ask, some)
        return page

    def ask(self, decision: Decision) -> _Asked:
        """Return what a decision needs, and note what has to be evaluated."""
        if decision.decision is not CommitDecision.APPROVED:
            payload = decision.parts.get(VERDICTS)
            if not needs_proposed(decision.decision, decision.reason, verdicts_in(payload)):
                return decision, NO_ROW
        sources = self.rebuilder.sources(decision)
        row = self._by_sources.get(sources)
        if row is None:
            row = self._found_row(decision)
            if sources is not None:
                if len(self._by_sources) > ROWS_MAX:
                    self._by_sources.clear()
                self._by_sources[sources] = row
        return decision, row

    def _found_row(self, decision: Decision) -> _Row:
        programs = self._applying.get((decision.key, decision.operation))
        if programs is None:
            programs = self._applying[decision.key, decision.operation] = self._by_name(decision)
        if not programs:
            return NO_ROW
        variables = self.rebuilder.variables(decision)
        place = (programs, *map(id, variables.values()))
        row = self._rows.get(place)
        if row is None:
            row = self._row(programs, variables)
            if len(self._rows) > ROWS_MAX:
                self._rows.clear()
            self._rows[place] = row  # it has the variables, so that no other object gets one of these ids
        return row

    def _by_name(self, decision: Decision) -> tuple[int, ...]:
        """Return the programs that apply to a decision, as far as names and operations say it."""
        view = view_of(decision)
        return tuple(
            number
            for number, program in enumerate(self._programs)
            if covers(without_metadata(program.policy.scope), view)
        )

    def _row(self, programs: tuple[int, ...], variables: Mapping[str, Known | Unknown]) -> _Row:
        """Return what the programs that apply need; where the metadata of the table decides that, as far as known."""
        keys: list[tuple[int, _Key, str, str]] = []
        for number in programs:
            applies = covers_table(self._programs[number].policy.scope, variables)
            if applies is not False:
                keys.append((number, *self._key(number, variables), "" if applies else SCOPE_UNKNOWN))
        return _Row(tuple(keys), tuple(variables.values()))

    def _key(self, number: int, variables: Mapping[str, Known | Unknown]) -> tuple[_Key, str]:
        """Return the key of an outcome, and why it may stay unknown; note the case if it is not known yet."""
        why = ""
        digests: list[object] = [number]
        for name, fields in self._programs[number].reads:
            variable = variables[name]
            digest = None if isinstance(variable, Unknown) else variable.digest(fields)
            digests.append(digest)
            if digest is None:
                why = why or (variable.why if isinstance(variable, Unknown) else FIELD_UNKNOWN)
        key = tuple(digests)
        self._note(number, key, variables)
        return key, why

    def _note(self, number: int, key: _Key, variables: Mapping[str, Known | Unknown]) -> None:
        """Have a program evaluated if its outcome is not known, and is not being found out."""
        if key in self._known or key in self._new or key in self._running:
            return
        if key in self._older:
            self._known[key] = self._older[key]
        else:
            self._new[key] = Case(number, tuple(self._that_are_known(number, variables)))

    def _that_are_known(
        self, number: int, variables: Mapping[str, Known | Unknown]
    ) -> Iterator[tuple[str, Known, frozenset[str] | None]]:
        for name, fields in self._programs[number].reads:
            variable = variables[name]
            if isinstance(variable, Known) and variable.digest(fields) is not None:
                yield name, variable, fields

    async def evaluate(self) -> None:
        """Have evaluated what is not known yet."""
        self._running, self._new = self._new, {}
        self.evaluated += len(self._running)
        if len(self._known) > KNOWN_MAX:
            # The page that was asked last may need what is known now, so that is kept for a while.
            self._older, self._known = self._known, {}
            self._rows.clear()
            self._by_sources.clear()
        outcomes = await self._workers.evaluate(list(self._running.values()))
        self._known.update(zip(self._running, outcomes, strict=True))
        self._running = {}

    def outcomes(self, row: _Row) -> dict[str, Evaluated]:
        """Return the outcomes of the policies that apply, by id."""
        return {
            self._programs[number].policy.id: known_outcome(self._known.get(key) or self._older[key], why, unsure)
            for number, key, why, unsure in row.keys
        }


FIELD_UNKNOWN: Final = "a field of a variable was not recorded"
SCOPE_UNKNOWN: Final = "whether the policy applies, for uuid or properties of the table are not known"


def known_outcome(outcome: Evaluated, why: str, unsure: str) -> Evaluated:
    """
    Return an outcome as far as it is known. Without a variable, yes and no hold whatever it was; an error may come from
    its absence. Of a policy that may not apply, only yes is known: then it is the same whether it does.
    """
    if unsure and outcome.outcome is not Outcome.ALLOW:
        return Evaluated(None, why=unsure)
    return Evaluated(None, why=why) if why and outcome.outcome is Outcome.ERROR else outcome


def needs_of(scope: Scope) -> Needs:
    """
    Return what has to be known of a table, so that `covers_table` can tell.
    """
    fields = {*(("properties",) if scope.properties else ()), *(("exists", "uuid") if scope.uuids else ())}
    return {name: frozenset(fields) for name in SIDES} if fields else {}


def covers_table(scope: Scope, variables: Mapping[str, Known | Unknown]) -> bool | None:
    """
    Return whether a scope covers a table by its properties and its uuid, before the commit or after it; None if that is
    not known. It is `scopes.covers` of what `without_metadata` leaves out, given the variables of policies.
    """
    sides = [variables[name] for name in SIDES] if scope.properties or scope.uuids else []
    parts = []
    if scope.properties:
        parts.append(_some(_has_tag(scope, side) for side in sides))
    if scope.uuids:
        parts.append(_some(_has_uuid(scope, side) for side in sides))
    return False if False in parts else None if None in parts else True


def _some(found: Iterable[bool | None]) -> bool | None:
    results = list(found)
    return True if True in results else None if None in results else False


def _has_tag(scope: Scope, side: Known | Unknown) -> bool | None:
    if isinstance(side, Unknown) or "properties" in side.missing:
        return None
    return has_tag(scope, side.members)


def _has_uuid(scope: Scope, side: Known | Unknown) -> bool | None:
    if isinstance(side, Unknown) or not side.missing.isdisjoint({"exists", "uuid"}):
        return None
    return bool(side.members["exists"]) and may_be_among(scope, side.members["uuid"])


@lru_cache(maxsize=VERDICTS_KEPT)
def _parsed_verdicts(payload: bytes) -> tuple[Verdict, ...]:
    return parse_verdicts(canonical.decode(payload))


def verdicts_in(payload: bytes | None) -> tuple[Verdict, ...] | None:
    """
    Return the verdicts of a payload part; None if it was erased.

    Raises:
        FormatError: if they are of another form.
    """
    return None if payload is None else _parsed_verdicts(payload)


@dataclass(frozen=True, slots=True, eq=False)
class _Settled:
    """What becomes of decisions with equal outcomes; `line` is that of the digest of verdicts, behind the index."""

    compared: Compared
    line: bytes
    taken: Taken
    is_reported: bool


def _digest_of(file: File | None) -> bytes:
    """Return the digest of metadata as it is hashed with the inputs."""
    return NO_FILE if file is None or file.sha256 is None else bytes.fromhex(file.sha256)


class _Tally:
    """Counts changes and hashes what they are made of, in the order of the log."""

    def __init__(
        self, found: Replayed, ids: frozenset[str], *, with_files: bool, branches: BranchCounts | None = None
    ) -> None:
        self._found = found
        self._ids = ids
        self._with_files = with_files
        self._branches = branches
        self._inputs = hashlib.sha256()
        self._verdicts = hashlib.sha256()
        self._groups: dict[tuple[Any, ...], Group] = {}
        self._settled: dict[object, _Settled] = {}

    def add(self, page: Iterable[_Asked], replaying: _Replay) -> None:
        """Count the decisions of a page that was evaluated."""
        all_settled: list[_Settled] = []
        inputs: list[bytes] = []
        lines: list[bytes] = []
        for decision, row in page:
            # The verdicts on what was approved do not count: all were yes.
            approved = decision.decision is CommitDecision.APPROVED
            place = row if approved else (decision.decision, decision.reason, decision.parts.get(VERDICTS), row)
            settled = self._settled.get(place) or self._settle(place, decision, replaying.outcomes(row))
            all_settled.append(settled)
            inputs.append(decision.leaf)
            if self._with_files:
                inputs += (_digest_of(decision.base), _digest_of(decision.made))
            lines.append(b"[%d,%s" % (decision.index, settled.line))
            if settled.is_reported:
                self._group(decision, settled.compared)
        self._inputs.update(b"".join(inputs))
        self._verdicts.update(b"".join(lines))
        self._count(all_settled)

    def _settle(self, place: object, decision: Decision, outcomes: Mapping[str, Evaluated]) -> _Settled:
        """Compare a decision with the outcomes of the policies that apply; others at the same place come out alike."""
        verdicts = verdicts_in(decision.parts.get(VERDICTS))
        compared = compare(decision.decision, decision.reason, verdicts, outcomes, ids=self._ids)
        given = [[policy, one.outcome or Change.UNKNOWN] for policy, one in outcomes.items()]
        line = orjson.dumps([compared.change, compared.rule, given], option=orjson.OPT_APPEND_NEWLINE)[1:]
        taken = tuple((policy, one.taken) for policy, one in outcomes.items() if one.taken)
        if len(self._settled) > ROWS_MAX:
            self._settled.clear()
        settled = self._settled[place] = _Settled(compared, line, taken, compared.change in REPORTED)
        return settled

    def _count(self, all_settled: Sequence[_Settled]) -> None:
        self._found.decisions += len(all_settled)
        for settled, times in Counter(all_settled).items():
            self._found.counts[settled.compared.change] += times
            if settled.taken and self._branches is not None:
                self._branches.add(settled.taken, times)

    def _group(self, decision: Decision, compared: Compared) -> None:
        key = (compared.change, compared.rule, decision.key, decision.actor, compared.why)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= GROUPS_MAX:
                self._found.ungrouped += 1
                return
            group = self._groups[key] = Group(
                compared.change,
                compared.rule,
                decision.key,
                decision.path,
                decision.actor,
                compared.why,
                decision.index,
            )
            self._found.groups.append(group)
        group.count += 1

    def finish(self) -> None:
        self._found.inputs, self._found.verdicts = self._inputs.hexdigest(), self._verdicts.hexdigest()
        if self._branches is not None:
            self._found.coverage = self._branches.coverage()
