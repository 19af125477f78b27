# SPDX-License-Identifier: Apache-2.0
"""Which keys verify which checkpoints: the chain of statements, followed by someone with files and a pinned key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.events import EventData, SignedTree, SignerRetired, SignerRotated
from ledger.format.key_history import (
    PAGE_SIZE_BYTES_MAX,
    KeyHistory,
    check_retirement,
    check_rotation,
    follow_keys,
    state_rotation,
)
from ledger.format.note import parse_note, sign_note
from testkit.ledger.signer_lives import (
    LIFE,
    ORIGIN,
    ROOT,
    SYSTEM,
    created,
    entries,
    pin,
    retired,
    rotated,
    signer,
    trees,
)


def note(size: int, *numbers: int, origin: str = ORIGIN) -> bytes:
    """Return a checkpoint that these keys have signed."""
    text = format_checkpoint(Checkpoint(origin=origin, size=size, root=ROOT))
    return sign_note(text, [signer(number, origin) for number in numbers])


@pytest.mark.parametrize("pinned", [1, 2, 3])
def test_whichever_key_is_pinned_the_others_are_followed(pinned: int) -> None:
    history = follow_keys(entries(*LIFE), [pin(pinned)], origin=SYSTEM)
    assert [term.public for term in history.terms] == [pin(number).public for number in (1, 2, 3)]
    assert history.keys_for(ORIGIN, 7) == (pin(3, ORIGIN), pin(2, ORIGIN), pin(1, ORIGIN))
    assert history.keys_for(ORIGIN, 8) == (pin(3, ORIGIN), pin(2, ORIGIN))


def test_a_key_is_pinned_by_any_log_that_it_signs() -> None:
    assert len(follow_keys(entries(*LIFE), [pin(1, ORIGIN)], origin=SYSTEM).terms) == 3


@pytest.fixture
def history() -> KeyHistory:
    return follow_keys(entries(*LIFE), [pin(1)], origin=SYSTEM)


@pytest.mark.parametrize(
    ("size", "numbers"),
    [(5, [1]), (7, [1]), (7, [2, 1]), (7, [2]), (8, [2]), (8, [3, 2]), (8, [1, 2]), (8, [3])],
)
def test_a_checkpoint_verifies_with_the_keys_valid_then(history: KeyHistory, size: int, numbers: list[int]) -> None:
    assert history.open(note(size, *numbers), origin=ORIGIN).size == size


@pytest.mark.parametrize(("size", "numbers"), [(8, [1]), (10**15, [1]), (7, [4]), (8, [4, 1])])
def test_a_retired_key_signs_nothing_newer_and_an_unknown_one_nothing(
    history: KeyHistory, size: int, numbers: list[int]
) -> None:
    with pytest.raises(BrokenError) as caught:
        history.open(note(size, *numbers))
    assert caught.value.fault is Fault.SIGNATURE


def test_a_retired_key_speaks_for_no_log_that_it_never_signed(history: KeyHistory) -> None:
    with pytest.raises(BrokenError):
        history.open(note(1, 1, origin="logs.example/later"))
    assert history.open(note(1, 2, origin="logs.example/later")).size == 1
    assert history.last_trees("logs.example/later") == ()


def test_a_note_with_one_bad_signature_of_a_valid_key_is_refused(history: KeyHistory) -> None:
    bad = bytearray(note(8, 3, 2))
    bad[-5] = ord("A") if bad[-5] != ord("A") else ord("B")
    with pytest.raises((BrokenError, FormatError)):
        history.open(bytes(bad))


def test_what_a_log_was_when_a_key_retired_binds(history: KeyHistory) -> None:
    assert history.last_trees(ORIGIN) == (Checkpoint(origin=ORIGIN, size=7, root=ROOT),)


def test_a_key_that_nobody_vouches_for_is_not_trusted() -> None:
    log = entries(*LIFE, created(9))  # as whoever may append could write it
    assert pin(9).public not in [term.public for term in follow_keys(log, [pin(1)], origin=SYSTEM).terms]
    with pytest.raises(BrokenError) as caught:
        follow_keys(entries(*LIFE), [pin(9)], origin=SYSTEM)
    assert caught.value.fault is Fault.SIGNATURE
    with pytest.raises(BrokenError):
        follow_keys(entries(*LIFE), [], origin=SYSTEM)
    with pytest.raises(BrokenError):
        follow_keys([], [pin(1)], origin=SYSTEM)


def forged(previous: int, successor: int, *, by: Sequence[int]) -> SignerRotated:
    """Return a rotation that other keys have signed."""
    genuine = rotated(previous, successor)
    text, _ = parse_note(genuine.note.encode())
    return replace(genuine, note=sign_note(text, [signer(number) for number in by]).decode())


OTHER_ORIGIN = state_rotation(signer(3, ORIGIN), signer(4, ORIGIN))


@pytest.mark.parametrize(
    "events",
    [
        (forged(3, 4, by=[4]),),
        (forged(3, 4, by=[3]),),
        (forged(3, 4, by=[9]),),
        (forged(3, 4, by=[9, 4]),),
        (replace(rotated(3, 4), vkey=pin(9).format()),),
        (replace(rotated(3, 4), note=rotated(2, 4).note),),
        (rotated(2, 4),),  # not from the key in force
        (rotated(9, 4),),
        (rotated(3, 1),),  # a key is never used twice
        (rotated(3, 4),),  # while the key before still overlaps
        (OTHER_ORIGIN,),
        tuple(retired(1, 2, trees(one=70))),  # once more
        tuple(retired(2, 3, trees(one=7), by=[2])),
        tuple(retired(2, 3, trees(one=7), by=[9])),
        tuple(retired(3, 2, trees(one=7))),
        tuple(replace(page, trees=tuple(trees(one=8))) for page in retired(2, 3, trees(one=7))),
        tuple(replace(page, page=1, pages=2) for page in retired(2, 3, trees(one=7))),
        tuple(replace(page, note=rotated(2, 3).note) for page in retired(2, 3, trees(one=7))),
        (created(1), replace(created(1), vkey=pin(1, ORIGIN).format())),
    ],
)
def test_what_does_not_follow_is_refused_at_its_index(events: Sequence[EventData]) -> None:
    good = entries(*LIFE)
    with pytest.raises(BrokenError) as caught:
        follow_keys(entries(*LIFE, *events), [pin(1)], origin=SYSTEM)
    assert caught.value.index == len(entries(*LIFE, *events)) - 1
    assert len(follow_keys(good, [pin(1)], origin=SYSTEM).terms) == 3


def test_a_lost_key_is_retired_by_the_one_that_goes_on() -> None:
    log = entries(*LIFE, *retired(2, 3, trees(one=8), by=[3]))
    history = follow_keys(log, [pin(1)], origin=SYSTEM)
    assert history.keys_for(ORIGIN, 9) == (pin(3, ORIGIN),)


def test_entries_of_another_log_tell_nothing() -> None:
    with pytest.raises(BrokenError, match=r"in logs\.example/one"):
        follow_keys(entries(*LIFE, log=ORIGIN), [pin(1)], origin=SYSTEM)


def test_a_retirement_of_ten_thousand_logs_is_told_in_pages_and_in_force_with_the_last() -> None:
    ends = [SignedTree(origin=f"logs.example/{number:032x}", size=number, root=ROOT.hex()) for number in range(10_000)]
    pages = retired(1, 2, [*reversed(ends)])
    assert 1 < len(pages) < 64
    assert max(sum(len(str(tree)) for tree in page.trees) for page in pages) < 2 * PAGE_SIZE_BYTES_MAX
    assert check_retirement(pages, origin=SYSTEM).trees == tuple(ends)
    begun = follow_keys(entries(created(1), rotated(1, 2), *pages[:-1]), [pin(1)], origin=SYSTEM)
    assert pin(1, ORIGIN) in begun.keys_for(ORIGIN, 10**6)
    done = follow_keys(entries(created(1), rotated(1, 2), *pages), [pin(1)], origin=SYSTEM)
    last = ends[-1].origin
    assert done.keys_for(last, 9_999) == (pin(2, last), pin(1, last))
    assert done.keys_for(last, 10_000) == (pin(2, last),)


@pytest.mark.parametrize(
    "change",
    [
        lambda pages: pages[1:],
        lambda pages: pages[:-1],
        lambda pages: [*pages[1:], pages[0]],
        lambda pages: [*pages, pages[-1]],
        lambda _: [],
        lambda pages: [replace(pages[0], successor=pin(9).format()), *pages[1:]],
        lambda pages: [replace(page, trees=page.trees[::-1]) for page in pages],
        lambda pages: [replace(pages[0], trees=pages[0].trees[1:]), *pages[1:]],
    ],
)
def test_a_retirement_of_other_pages_is_refused(change: Callable[[list[SignerRetired]], list[SignerRetired]]) -> None:
    ends = [SignedTree(origin=f"logs.example/{number:032x}", size=number, root=ROOT.hex()) for number in range(900)]
    with pytest.raises((FormatError, BrokenError)):
        check_retirement(change(retired(1, 2, ends)), origin=SYSTEM)


@pytest.mark.parametrize("bad", [{"size": -1}, {"size": 2**63}, {"root": "00"}, {"root": "G" * 64}])
def test_a_tree_that_is_none_is_not_stated(bad: dict[str, int | str]) -> None:
    with pytest.raises(FormatError):
        retired(1, 2, [replace(trees(one=1)[0], **bad)])  # type: ignore[arg-type]
    with pytest.raises(FormatError):
        retired(1, 2, [*trees(one=1), *trees(one=2)])


def test_no_statement_is_a_checkpoint() -> None:
    for statement in (rotated(1, 2).note, retired(1, 2, trees(one=7))[0].note):
        with pytest.raises((FormatError, BrokenError)):
            follow_keys(entries(*LIFE), [pin(1)], origin=SYSTEM).open(statement.encode())
    assert check_rotation(rotated(1, 2), origin=SYSTEM) == (pin(1), pin(2))
