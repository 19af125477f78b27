# SPDX-License-Identifier: Apache-2.0
"""Anchors: a log that was removed, cut off or rewritten contradicts the system log; and who vouches for that one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from ledger.anchoring import (
    Anchor,
    Pinned,
    WitnessKind,
    anchors_of,
    check_all_present,
    check_anchors,
    judge_witnessing,
    stamped_note,
)
from ledger.anchoring.anchors import NOT_WITNESSED, Witnessing, anchor_key
from ledger.errors import BrokenError, Fault
from ledger.format.canonical import Json
from ledger.format.cosignature import Cosigner
from ledger.format.event import Event, prepare
from ledger.format.events import LogsAnchored, to_data
from ledger.format.merkle import Frontier
from ledger.format.note import Ed25519Signer, format_note, parse_note
from ledger.format.sequence import Group, SequencedEntry
from ledger.format.signature import ED25519_COSIGNATURE
from ledger.format.witness_policy import UNSAFE_NO_QUORUM, PolicyGroup, PolicyWitness, WitnessPolicy
from testkit.ledger.logs import ORIGIN, START, groups, rows_of, sequenced, signed
from testkit.ledger.stamps import good
from testkit.ledger.witnesses import timeless

SYSTEM = "logs.example/system"
SYSTEM_SIGNER = Ed25519Signer.from_seed(name=SYSTEM, seed=b"s" * 32)
SIZES = (3, 40, 41, 300)
LATER_S = int(START.timestamp()) + 60

ROWS = rows_of(SIZES[-1])


def root_of_rows(rows: Sequence[SequencedEntry], size: int) -> bytes:
    return Frontier.empty().extended(row.leaf for row in rows[:size]).root()


def told(
    size: int, *, origin: str = ORIGIN, root: str | None = None, changed: Mapping[str, Json] | None = None
) -> Event:
    """Return the event that anchors the log of `ROWS` at that size, with other members if some are named."""
    event = LogsAnchored(origin=origin, root=root or root_of_rows(ROWS, size).hex(), size=size)
    return Event(
        type=LogsAnchored.TYPE,
        version=1,
        key=anchor_key(origin),
        actor="system",
        occurred_at=START,
        data={**to_data(event), **(changed or {})},
    )


def system_log(*events: Event) -> list[bytes]:
    """Return the entries of a system log that holds these events, one a group, among others."""
    wanted = [*groups(10), *(Group(id=UUID(int=n + 1), then=(prepare(event),)) for n, event in enumerate(events))]
    return [row.entry for row in sequenced(wanted, log=SYSTEM)[0]]


def check(events: Sequence[Event], rows: Sequence[SequencedEntry], *, origin: str = ORIGIN) -> Anchor | None:
    """Check the log of `rows` against the anchors among `events`."""
    anchors = anchors_of(system_log(*events)).get(origin, ())
    return check_anchors(anchors, origin=origin, size=len(rows), root_at=lambda size: root_of_rows(rows, size))


def fault(events: Sequence[Event], rows: Sequence[SequencedEntry]) -> BrokenError:
    with pytest.raises(BrokenError) as caught:
        check(events, rows)
    assert caught.value.fault is Fault.ANCHOR
    return caught.value


HONEST = [told(size) for size in SIZES]


# Anchors, pure


def test_an_honest_log_is_what_its_anchors_say() -> None:
    newest = check(HONEST, ROWS)
    assert newest is not None
    assert (newest.origin, newest.size, newest.root) == (ORIGIN, SIZES[-1], root_of_rows(ROWS, SIZES[-1]))
    assert newest.index == 10 + len(SIZES) - 1
    grown = rows_of(SIZES[-1] + 20)
    assert check(HONEST, grown) == newest  # what is behind is not covered, and no fault


def test_a_log_without_anchors_is_covered_by_nothing() -> None:
    assert check([], ROWS) is None


def test_a_log_that_was_removed_whole_is_noticed() -> None:
    anchors = anchors_of(system_log(*HONEST))
    check_all_present(anchors, origins=[ORIGIN, SYSTEM])
    with pytest.raises(BrokenError, match="removed whole") as caught:
        check_all_present(anchors, origins=[SYSTEM])
    assert (caught.value.fault, caught.value.index) == (Fault.ANCHOR, 0)
    assert fault(HONEST, []).index == 0


@pytest.mark.parametrize("size", [SIZES[-1] - 1, 41, 40, 1])
def test_a_log_that_was_cut_off_is_noticed(size: int) -> None:
    assert fault(HONEST, ROWS[:size]).index == size


@pytest.mark.parametrize("at", [0, 2, 39, 299])
def test_a_log_that_was_rewritten_is_noticed(at: int) -> None:
    other = rows_of(SIZES[-1], salt="other")
    rewritten = [*ROWS[:at], *other[at:]]
    found = fault(HONEST, rewritten)
    before = max((size for size in SIZES if size <= at), default=0)
    expected = f"entries from {before} on were changed" if before else "entries were changed"
    assert expected in str(found)


def test_every_changed_anchor_is_noticed() -> None:
    for position, size in enumerate(SIZES):
        root = bytearray(root_of_rows(ROWS, size))
        root[position] ^= 1
        fault([*HONEST[:position], told(size, root=root.hex()), *HONEST[position + 1 :]], ROWS)


def test_sizes_of_anchors_only_grow() -> None:
    assert "a size over 40" in str(fault([told(40), told(3)], ROWS))
    assert "a size over 40" in str(fault([told(40), told(40)], ROWS))


@pytest.mark.parametrize(
    "event",
    [
        told(3, root="AB" * 32),
        told(3, root="ab" * 31),
        told(3, root="zz" * 32),
        told(3, root="²" * 64),
        told(0),
        told(3, changed={"size": -1}),
        told(3, changed={"more": 1}),
        told(3, changed={"size": "3"}),
        told(3, changed={"origin": "no origin"}),
        replace(told(3), key="log:other"),
        replace(told(3), version=2),
    ],
)
def test_an_anchor_of_another_form_is_corruption(event: Event) -> None:
    with pytest.raises(BrokenError) as caught:
        anchors_of(system_log(told(3), event))
    assert (caught.value.fault, caught.value.index) == (Fault.ANCHOR, 11)


def test_what_only_looks_like_an_anchor_is_none() -> None:
    looks = Event(
        type="trigger.received",
        version=1,
        key="table:a",
        actor="system",
        occurred_at=START,
        data={"a": {"type": "logs.anchored"}, "b": '"type":"logs.anchored"'},
    )
    assert anchors_of(system_log(looks)) == {}


def test_anchors_of_another_log_are_no_evidence() -> None:
    anchors = anchors_of(system_log(told(3, origin=SYSTEM)))[SYSTEM]
    with pytest.raises(BrokenError, match=f"the log {ORIGIN}"):
        check_anchors(anchors, origin=ORIGIN, size=300, root_at=lambda size: root_of_rows(ROWS, size))


# Who vouches


WITNESSES = [Cosigner.from_seed(ED25519_COSIGNATURE, name=f"w{n}.example/w", seed=bytes([n]) * 32) for n in range(3)]
POLICY = WitnessPolicy(
    logs=(),
    witnesses=tuple(PolicyWitness(name=f"w{n}", key=one.verifier_key) for n, one in enumerate(WITNESSES)),
    groups=(PolicyGroup(name="two", threshold=2, members=("w0", "w1", "w2")),),
    quorum="two",
)
STAMP_ROOTS = (good().root.certificate,)


def cosigned(note: bytes, *witnesses: int) -> bytes:
    """Return the note with the cosignatures of these witnesses, each a second later than the one before."""
    text, lines = parse_note(note)
    return format_note(text, [*lines, *(WITNESSES[n].cosign(text, time_s=LATER_S + n) for n in witnesses)])


def judge(note: bytes, *, pinned: Pinned, token: bytes | None = None, origin: str = ORIGIN) -> Witnessing:
    entries = system_log(*HONEST)
    anchors = anchors_of(entries)[ORIGIN]
    keys = [SYSTEM_SIGNER.verifier_key]
    return judge_witnessing(note, origin=origin, anchors=anchors, keys=keys, pinned=pinned, token=token)


def system_note(size: int) -> bytes:
    return signed(system_log(*HONEST)[:size], SYSTEM_SIGNER)


def token_over(note: bytes, *, at: datetime) -> bytes:
    return replace(good(), note=note, gen_time=at).token()


def test_with_nothing_pinned_nothing_is_witnessed() -> None:
    note = cosigned(system_note(14), 0, 1, 2)
    token = token_over(stamped_note(note), at=START)
    assert judge(note, pinned=Pinned(), token=token) == NOT_WITNESSED
    assert judge(note, pinned=Pinned(stamp_roots=STAMP_ROOTS)) == NOT_WITNESSED  # there is no token


@pytest.mark.parametrize(("system_size", "covered"), [(14, 300), (13, 41), (12, 40), (11, 3), (10, 0)])
def test_a_log_is_covered_up_to_the_newest_anchor_below_the_checkpoint(system_size: int, covered: int) -> None:
    witnessing = judge(cosigned(system_note(system_size), 0, 2), pinned=Pinned(policy=POLICY))
    assert (witnessing.kinds, witnessing.size) == ((WitnessKind.COSIGNED,), covered)
    # By the later of the two had the whole quorum seen it.
    assert (witnessing.time, witnessing.by) == (datetime.fromtimestamp(LATER_S + 2, UTC), ("w0", "w2"))


def test_the_system_log_is_covered_by_its_own_checkpoint() -> None:
    assert judge(cosigned(system_note(13), 0, 1), pinned=Pinned(policy=POLICY), origin=SYSTEM).size == 13


def test_too_few_witnesses_vouch_for_nothing() -> None:
    assert judge(cosigned(system_note(14), 1), pinned=Pinned(policy=POLICY)) == NOT_WITNESSED


def test_a_witness_that_names_no_time_vouches_for_nothing_and_dates_nothing() -> None:
    text, lines = parse_note(cosigned(system_note(14), 1))
    alone = format_note(text, [*lines, timeless(WITNESSES[0], text)])
    assert judge(alone, pinned=Pinned(policy=POLICY)) == NOT_WITNESSED
    text, lines = parse_note(cosigned(system_note(14), 1, 2))
    enough = judge(format_note(text, [*lines, timeless(WITNESSES[0], text)]), pinned=Pinned(policy=POLICY))
    assert (enough.time, enough.by) == (datetime.fromtimestamp(LATER_S + 2, UTC), ("w1", "w2"))


def test_a_bad_cosignature_or_a_foreign_note_is_an_error() -> None:
    text, lines = parse_note(cosigned(system_note(14), 0, 1))
    bad = replace(lines[1], signature=lines[1].signature[:-1] + bytes([lines[1].signature[-1] ^ 1]))
    for note in (
        format_note(text, [lines[0], bad, lines[2]]),
        signed([], Ed25519Signer.from_seed(name=SYSTEM, seed=bytes(32))),
    ):
        with pytest.raises(BrokenError) as caught:
            judge(note, pinned=Pinned(policy=POLICY))
        assert caught.value.fault is Fault.SIGNATURE


def test_a_time_stamp_vouches_and_the_earlier_time_counts() -> None:
    note, noon = system_note(14), START
    pinned = Pinned(policy=POLICY, stamp_roots=STAMP_ROOTS)
    token = token_over(note, at=noon)
    assert judge(note, pinned=pinned, token=token).kinds == (WitnessKind.STAMPED,)
    both = judge(cosigned(note, 0, 1), pinned=pinned, token=token)
    assert (both.kinds, both.size, both.time) == ((WitnessKind.COSIGNED, WitnessKind.STAMPED), 300, noon)
    assert both.by == ("w0", "w1", "CN=signer")


def test_a_time_stamp_on_another_note_is_an_error() -> None:
    with pytest.raises(BrokenError) as caught:
        judge(system_note(14), pinned=Pinned(stamp_roots=STAMP_ROOTS), token=token_over(system_note(13), at=START))
    assert caught.value.fault is Fault.STAMP


def test_what_is_stamped_is_the_note_without_the_lines_of_others() -> None:
    note = system_note(14)
    assert stamped_note(cosigned(note, 0, 1, 2)) == stamped_note(note) == note


def test_a_quorum_of_nobody_has_to_be_said() -> None:
    unsafe = WitnessPolicy(logs=(), witnesses=POLICY.witnesses, groups=(), quorum=UNSAFE_NO_QUORUM)
    assert judge(system_note(14), pinned=Pinned(policy=unsafe)) == NOT_WITNESSED
