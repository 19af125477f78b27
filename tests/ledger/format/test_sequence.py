# SPDX-License-Identifier: Apache-2.0
"""The rules of the log against a model that appends one group after the other, and each rule by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ledger.errors import FormatError, GroupMismatchError, GuardError, LimitExceededError
from ledger.format.canonical import Json
from ledger.format.entry import FIRST_PREVIOUS, Branch, parse_entry
from ledger.format.event import GROUP_EVENTS_MAX, GROUP_SIZE_BYTES_MAX, Event, Part, PreparedEvent, prepare
from ledger.format.guards import GuardCall
from ledger.format.merkle import leaf_hash, root_of
from ledger.format.sequence import (
    NO_CONTROL,
    Appended,
    AppendOutcome,
    AppendRefused,
    Group,
    GuardResult,
    LogHead,
    Sequenced,
    Stale,
    StoredGroup,
    sequence,
)

ORIGIN = "logs.example/00112233445566778899aabbccddeeff"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
IDS = tuple(UUID(int=number) for number in range(1, 9))
ONE, TWO, THREE = IDS[:3]
CREATE, BROKEN = "create", "broken"
"""A guard that holds if its key is new, and one whose SQL fails."""


def event(
    n: int = 0,
    *,
    kind: str = "commit.decided",
    payloads: Mapping[str, bytes] | None = None,
    salt: int = 0,
    at: datetime = NOON,
) -> PreparedEvent:
    parts = tuple(Part(name=name, payload=data, salt=bytes([salt]) * 32) for name, data in (payloads or {}).items())
    data: dict[str, Json] = {"n": n}
    return prepare(
        Event(type=kind, version=1, key="table:lake/t", actor="system", occurred_at=at, data=data, parts=parts)
    )


class GuardedRows:
    """Stands for the guarded tables: keys that were created, and which groups' guards were run."""

    def __init__(self, keys: set[str] | None = None) -> None:
        self.keys = keys if keys is not None else set()
        self.asked: list[UUID] = []

    def answer(self, group: Group) -> GuardResult:
        self.asked.append(group.id)
        wanted = {str(call.parameters["key"]) for call in group.guard}
        if BROKEN in {call.guard for call in group.guard}:
            return GuardError("its SQL failed")
        if wanted & self.keys:
            return False
        self.keys |= wanted
        return True


def drive(
    head: LogHead,
    groups: Sequence[Group],
    *,
    stored: Mapping[UUID, StoredGroup] | None = None,
    clock: datetime = NOON,
    answer: Callable[[Group], GuardResult] = lambda _: True,
    log: str = ORIGIN,
) -> Sequenced:
    """Run the rules to their end, answering for the guards."""
    flow = sequence(head, groups, log=log, stored=stored or {}, clock=clock)
    try:
        group = next(flow)
        while True:
            group = flow.send(answer(group))
    except StopIteration as done:
        result: Sequenced = done.value
        return result


def told(outcome: AppendOutcome) -> tuple[object, ...]:
    """Return what an outcome tells its caller, without the time."""
    match outcome:
        case Appended(branch=branch, indices=indices, repeated=repeated):
            return ("appended", branch, indices, repeated)
        case Stale(control_index=control_index):
            return ("stale", control_index)
        case AppendRefused(error=error):
            return ("refused", type(error))


# The rules and a model of what they promise.


@dataclass
class ModelLog:
    """A log as it is promised: groups in places, and of their payload parts those that were erased."""

    origin: str
    rows: GuardedRows = field(default_factory=GuardedRows)
    groups: dict[UUID, tuple[Branch, range, Group]] = field(default_factory=dict)
    erased: set[tuple[UUID, str]] = field(default_factory=set)
    size: int = 0
    control_index: int = NO_CONTROL

    def append(self, group: Group) -> tuple[object, ...]:
        """Append one group, alone, and return what its caller is to be told."""
        if (known := self.groups.get(group.id)) is not None:
            branch, places, first = known
            same = self._content(group, branch) == self._content(first, branch)
            return ("appended", branch, places, True) if same else ("refused", GroupMismatchError)
        if group.as_of is not None and group.as_of < self.control_index:
            return ("stale", self.control_index)
        answer = self.rows.answer(group) if group.guard else True
        if isinstance(answer, GuardError):
            return ("refused", GuardError)
        branch = Branch.THEN if answer else Branch.ELSE
        places = range(self.size, self.size + len(group.branch(branch)))
        self.size = places.stop
        if places:
            self.groups[group.id] = (branch, places, group)
        control = [at for at, one in zip(places, group.branch(branch), strict=True) if one.is_control]
        self.control_index = max([self.control_index, *control])
        return ("appended", branch, places, False)

    def _content(self, group: Group, branch: Branch) -> list[tuple[object, ...]]:
        """What makes two groups the same: neither times nor salts nor what was erased."""
        return [
            (
                *(one.type, one.version, one.key, one.actor, one.data),
                [(p.name, None if (group.id, p.name) in self.erased else p.payload) for p in one.parts],
            )
            for one in group.branch(branch)
        ]


@dataclass
class RealLog:
    """What the rules have made: the head and the entries, and the salts of the parts."""

    head: LogHead = field(default_factory=LogHead.empty)
    entries: list[bytes] = field(default_factory=list)
    salts: list[dict[str, bytes]] = field(default_factory=list)
    rows: GuardedRows = field(default_factory=GuardedRows)
    clock: datetime = NOON

    def stored(self, model: ModelLog) -> dict[UUID, StoredGroup]:
        return {
            group_id: StoredGroup(
                entries=tuple(self.entries[places.start : places.stop]), salts=tuple(self.salts[at] for at in places)
            )
            for group_id, (_, places, _) in model.groups.items()
        }


CONTENTS = st.builds(
    event,
    n=st.integers(0, 1),
    kind=st.sampled_from(["commit.decided", "commit.decided", "commit.decided", "policy.changed"]),
    payloads=st.sampled_from([{}, {}, {"inputs": b"a"}, {"inputs": b"b"}, {"inputs": b"a", "message": b"m"}]),
    salt=st.integers(0, 255),
    at=st.sampled_from([NOON, NOON + timedelta(seconds=1)]),
)
CONTENTS_OF_A_BRANCH = st.lists(CONTENTS, min_size=1, max_size=3).map(tuple)


@st.composite
def any_group(draw: st.DrawFn) -> Group:
    guard = draw(st.sampled_from([None, None, (CREATE, "a"), (CREATE, "b"), (BROKEN, "c")]))
    return Group(
        id=draw(st.sampled_from(IDS)),
        then=draw(CONTENTS_OF_A_BRANCH),
        otherwise=draw(CONTENTS_OF_A_BRANCH | st.just(())) if guard else (),
        guard=(GuardCall(guard[0], {"key": guard[1]}),) if guard else (),
        as_of=draw(st.sampled_from([None, None, None, -1, 2, 1000])),
    )


class Logs(RuleBasedStateMachine):
    """Batches of any groups to one of several logs; every caller must be told what the model tells."""

    def __init__(self) -> None:
        super().__init__()
        self.models = [ModelLog(origin=f"logs.example/{number}") for number in range(3)]
        self.logs = [RealLog() for _ in self.models]

    @rule(at=st.integers(0, 2), groups=st.lists(any_group(), min_size=1, max_size=6), passed_s=st.integers(-2, 5))
    def a_batch_does_what_its_groups_would_do_one_by_one(self, at: int, groups: list[Group], passed_s: int) -> None:
        model, log = self.models[at], self.logs[at]
        log.clock += timedelta(seconds=passed_s)  # sometimes backwards
        done = drive(
            log.head,
            groups,
            stored=log.stored(model),
            clock=log.clock,
            answer=log.rows.answer,
            log=model.origin,
        )
        assert [told(outcome) for outcome in done.outcomes] == [model.append(group) for group in groups]
        assert log.rows.asked == model.rows.asked  # no guard runs that need not
        log.head = done.head
        log.entries += [row.entry for row in done.rows]
        log.salts += [{part.name: part.salt for part in row.parts} for row in done.rows]

    @precondition(lambda self: any(model.groups for model in self.models))
    @rule(data=st.data())
    def a_part_is_erased(self, data: st.DataObject) -> None:
        at = data.draw(st.sampled_from([at for at, model in enumerate(self.models) if model.groups]))
        group_id, (_, places, _) = data.draw(st.sampled_from(sorted(self.models[at].groups.items(), key=str)))
        name = data.draw(st.sampled_from(["inputs", "message"]))
        self.models[at].erased.add((group_id, name))
        for place in places:
            self.logs[at].salts[place].pop(name, None)

    @invariant()
    def every_log_is_an_unbroken_chain(self) -> None:
        for model, log in zip(self.models, self.logs, strict=True):
            previous, before = FIRST_PREVIOUS, NOON - timedelta(days=1)
            seen: dict[UUID, list[int]] = {}
            for index, data in enumerate(log.entries):
                entry = parse_entry(data)
                assert (entry.log, entry.index, entry.previous) == (model.origin, index, previous)
                assert entry.recorded_at >= before
                seen.setdefault(entry.group_id, []).append(index)
                assert seen[entry.group_id] == list(range(index - entry.position, index + 1))
                previous, before = leaf_hash(data), entry.recorded_at
            assert {group_id: range(at[0], at[-1] + 1) for group_id, at in seen.items()} == {
                group_id: places for group_id, (_, places, _) in model.groups.items()
            }
            assert (log.head.size, log.head.last) == (len(log.entries), previous)
            assert log.head.control_index == model.control_index
            assert log.head.frontier.root() == root_of([leaf_hash(entry) for entry in log.entries])
            assert log.rows.keys == model.rows.keys


TestLogs = Logs.TestCase
TestLogs.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)


# Each rule by itself.


def test_the_first_entry_follows_nothing() -> None:
    done = drive(LogHead.empty(), [Group(id=ONE, then=(event(),))])
    entry = parse_entry(done.rows[0].entry)
    assert (entry.index, entry.previous, entry.log) == (0, bytes(32), ORIGIN)
    assert done.head.size == 1
    assert done.head.last == leaf_hash(done.rows[0].entry) == done.rows[0].leaf


def test_the_events_of_a_group_stand_together_and_only_the_first_row_names_it() -> None:
    done = drive(LogHead.empty(), [Group(id=ONE, then=(event(1), event(2), event(3))), Group(id=TWO, then=(event(4),))])
    entries = [parse_entry(row.entry) for row in done.rows]
    assert [(e.group_id, e.of, e.position) for e in entries] == [(ONE, 3, 0), (ONE, 3, 1), (ONE, 3, 2), (TWO, 1, 0)]
    assert [row.group_id for row in done.rows] == [ONE, None, None, TWO]
    assert [told(outcome) for outcome in done.outcomes] == [
        ("appended", Branch.THEN, range(3), False),
        ("appended", Branch.THEN, range(3, 4), False),
    ]


def test_the_derived_columns_are_those_of_the_event() -> None:
    (row,) = drive(LogHead.empty(), [Group(id=ONE, then=(event(kind="policy.created", payloads={"a": b"1"}),))]).rows
    assert (row.type, row.key, row.is_control) == ("policy.created", "table:lake/t", True)
    assert [part.payload for part in row.parts] == [b"1"]


def test_recorded_at_never_falls_even_if_the_clock_does() -> None:
    first = drive(LogHead.empty(), [Group(id=ONE, then=(event(),))], clock=NOON)
    second = drive(first.head, [Group(id=TWO, then=(event(),))], clock=NOON - timedelta(hours=1))
    assert parse_entry(second.rows[0].entry).recorded_at == NOON
    third = drive(second.head, [Group(id=THREE, then=(event(),))], clock=NOON + timedelta(microseconds=1))
    assert third.head.recorded_at == NOON + timedelta(microseconds=1)


def test_a_control_entry_makes_what_stands_behind_it_in_the_batch_stale() -> None:
    groups = [
        Group(id=ONE, then=(event(),), as_of=NO_CONTROL),
        Group(id=TWO, then=(event(kind="policy.created"), event())),
        Group(id=THREE, then=(event(),), as_of=NO_CONTROL),
        Group(id=IDS[3], then=(event(),), as_of=1),
    ]
    done = drive(LogHead.empty(), groups)
    assert [told(outcome)[0] for outcome in done.outcomes] == ["appended", "appended", "stale", "appended"]
    assert told(done.outcomes[2]) == ("stale", 1)
    assert done.head.control_index == 1


def test_a_group_may_be_as_of_its_own_control_entry_s_place_before() -> None:
    head = drive(LogHead.empty(), [Group(id=ONE, then=(event(kind="policy.created"),))]).head
    done = drive(head, [Group(id=TWO, then=(event(kind="policy.changed"), event()), as_of=0)])
    assert told(done.outcomes[0]) == ("appended", Branch.THEN, range(1, 3), False)
    assert done.head.control_index == 1


def test_a_stored_group_is_answered_though_it_would_be_stale_now() -> None:
    group = Group(id=ONE, then=(event(),), as_of=NO_CONTROL)
    first = drive(LogHead.empty(), [group, Group(id=TWO, then=(event(kind="policy.created"),))])
    again = drive(first.head, [group], stored={ONE: stored(first, ONE)})
    assert told(again.outcomes[0]) == ("appended", Branch.THEN, range(1), True)
    assert again.head is first.head
    assert again.rows == []


def stored(done: Sequenced, group_id: UUID) -> StoredGroup:
    """Return a group as the log holds it after `done`."""
    rows = [row for row in done.rows if parse_entry(row.entry).group_id == group_id]
    return StoredGroup(
        entries=tuple(row.entry for row in rows),
        salts=tuple({part.name: part.salt for part in row.parts} for row in rows),
    )


def test_the_stored_branch_is_the_answer_and_its_guard_does_not_run_again() -> None:
    group = Group(id=ONE, then=(event(1),), otherwise=(event(2), event(3)), guard=(GuardCall(CREATE, {"key": "a"}),))
    first = drive(LogHead.empty(), [group], answer=lambda _: False)
    rows = GuardedRows()
    again = drive(first.head, [group], stored={ONE: stored(first, ONE)}, answer=rows.answer)
    assert told(again.outcomes[0]) == ("appended", Branch.ELSE, range(2), True)
    assert rows.asked == []


def test_an_empty_else_branch_stores_nothing_so_its_guard_runs_again() -> None:
    group = Group(id=ONE, then=(event(1),), guard=(GuardCall(CREATE, {"key": "a"}),))
    rows = GuardedRows({"a"})
    done = drive(LogHead.empty(), [group, group], answer=rows.answer)
    assert [told(outcome) for outcome in done.outcomes] == [("appended", Branch.ELSE, range(0), False)] * 2
    assert rows.asked == [ONE, ONE]
    rows.keys.clear()
    assert told(drive(done.head, [group], answer=rows.answer).outcomes[0]) == (
        "appended",
        Branch.THEN,
        range(1),
        False,
    )


BASE = Group(id=ONE, then=(event(1, payloads={"inputs": b"a"}), event(2)))


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (replace(BASE, then=BASE.then[:1]), "2 events, now 1"),
        (replace(BASE, then=(BASE.then[0], event(3))), "event 1: data"),
        (replace(BASE, then=(BASE.then[0], event(2, kind="commit.settled"))), "event 1: type"),
        (replace(BASE, then=(event(1, payloads={"inputs": b"b"}), event(2))), "event 0: part"),
        (replace(BASE, then=(event(1, payloads={"input": b"a"}), event(2))), "event 0: .*part"),
        (replace(BASE, then=(event(1), event(2))), "event 0: .*part"),
        (replace(BASE, then=(BASE.then[0], replace(BASE.then[1], key="table:lake/u"))), "event 1: key"),
        (replace(BASE, then=(BASE.then[0], replace(BASE.then[1], version=2))), "event 1: version"),
        (replace(BASE, then=(BASE.then[0], replace(BASE.then[1], actor="0" * 32))), "event 1: actor"),
    ],
)
def test_other_content_under_a_known_id_is_refused_and_says_what_differs(other: Group, differs: str) -> None:
    first = drive(LogHead.empty(), [BASE])
    for done in (
        drive(first.head, [other], stored={ONE: stored(first, ONE)}),
        drive(LogHead.empty(), [BASE, other]),  # a twin in one batch
    ):
        refused = done.outcomes[-1]
        assert isinstance(refused, AppendRefused)
        with pytest.raises(GroupMismatchError, match=differs):
            raise refused.error


def test_times_and_salts_do_not_make_another_group() -> None:
    again = Group(id=ONE, then=(event(1, payloads={"inputs": b"a"}, salt=9, at=NOON + timedelta(days=1)), event(2)))
    first = drive(LogHead.empty(), [BASE])
    for done in (drive(first.head, [again], stored={ONE: stored(first, ONE)}), drive(LogHead.empty(), [BASE, again])):
        assert told(done.outcomes[-1]) == ("appended", Branch.THEN, range(2), True)


def test_an_erased_part_is_not_compared_but_its_name_is() -> None:
    first = drive(LogHead.empty(), [BASE])
    erased = replace(stored(first, ONE), salts=({}, {}))
    other = replace(BASE, then=(event(1, payloads={"inputs": b"b"}), event(2)))
    assert told(drive(first.head, [other], stored={ONE: erased}).outcomes[0])[0] == "appended"
    renamed = replace(BASE, then=(event(1, payloads={"input": b"a"}), event(2)))
    assert told(drive(first.head, [renamed], stored={ONE: erased}).outcomes[0]) == ("refused", GroupMismatchError)


def test_a_refused_twin_does_not_spoil_the_right_one() -> None:
    first = drive(LogHead.empty(), [BASE])
    wrong = replace(BASE, then=(event(7),))
    done = drive(first.head, [wrong, BASE], stored={ONE: stored(first, ONE)})
    assert [told(outcome)[0] for outcome in done.outcomes] == ["refused", "appended"]


def test_a_stored_entry_that_is_none_is_corruption() -> None:
    first = drive(LogHead.empty(), [BASE])
    broken = replace(stored(first, ONE), entries=(first.rows[0].entry[:-1], first.rows[1].entry))
    with pytest.raises(FormatError, match="canonical"):
        drive(first.head, [BASE], stored={ONE: broken})


def test_a_failed_guard_refuses_its_group_alone() -> None:
    call = (GuardCall(BROKEN, {"key": "x"}),)
    groups = [
        Group(id=ONE, then=(event(),)),
        Group(id=TWO, then=(event(),), guard=call),
        Group(id=THREE, then=(event(),)),
    ]
    done = drive(LogHead.empty(), groups, answer=GuardedRows().answer)
    assert [told(outcome)[0] for outcome in done.outcomes] == ["appended", "refused", "appended"]
    assert [row.index for row in done.rows] == [0, 1]


def test_no_groups_change_nothing() -> None:
    head = drive(LogHead.empty(), [BASE]).head
    assert drive(head, []).head is head


def test_a_group_has_an_event_and_an_else_branch_has_a_guard() -> None:
    with pytest.raises(FormatError, match="at least one event"):
        Group(id=ONE, then=())
    with pytest.raises(FormatError, match="a guard with its else branch"):
        Group(id=ONE, then=(event(),), otherwise=(event(),))


def test_a_group_of_the_largest_size_is_accepted_and_more_is_refused() -> None:
    one = event()
    assert len(Group(id=ONE, then=(one,) * GROUP_EVENTS_MAX).then) == GROUP_EVENTS_MAX
    with pytest.raises(LimitExceededError, match="events: 1025"):
        Group(id=ONE, then=(one,) * (GROUP_EVENTS_MAX + 1))
    room = GROUP_SIZE_BYTES_MAX - len(event(payloads={"a": b""}).event)
    full = event(payloads={"a": bytes(room)})
    assert Group(id=ONE, then=(full,)).size_bytes == GROUP_SIZE_BYTES_MAX
    over = event(payloads={"a": bytes(room + 1)})
    with pytest.raises(LimitExceededError, match="bytes"):
        Group(id=ONE, then=(one,), otherwise=(over,), guard=(GuardCall(CREATE, {"key": "a"}),))
