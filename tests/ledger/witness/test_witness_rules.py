# SPDX-License-Identifier: Apache-2.0
"""The rules of a witness, sentence by sentence of tlog-witness: what it must refuse, and with which status."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import FormatError
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.merkle import EMPTY_ROOT
from ledger.format.note import Signature, VerifierKey, format_note, parse_note, sign_note
from ledger.witness.rules import (
    HASHES_MAX,
    REQUEST_SIZE_BYTES_MAX,
    AddCheckpoint,
    OpenedRequest,
    Refusal,
    RefusedError,
    check_growth,
    format_request,
    open_request,
    parse_request,
)
from testkit.ledger.witnesses import GENUINE, LOG, ORIGIN, OTHER_LOG, SIZE, History, cosigners, forked

KEYS = {ORIGIN: [LOG.verifier_key], OTHER_LOG.name: [OTHER_LOG.verifier_key]}


def keys_of(origin: str) -> list[VerifierKey] | None:
    return KEYS.get(origin)


def submitted(body: bytes) -> OpenedRequest:
    return open_request(body, keys_of)


def refused(body: bytes, last: Checkpoint | None = None) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        check_growth(submitted(body), last)
    return caught.value


def request(note: bytes, *, old_size: int = 0, proof: tuple[bytes, ...] = ()) -> bytes:
    return format_request(AddCheckpoint(old_size=old_size, proof=proof, note=note))


def with_root(size: int, root: bytes) -> bytes:
    return sign_note(format_checkpoint(Checkpoint(origin=ORIGIN, size=size, root=root)), [LOG])


# The request


def test_a_request_has_the_lines_of_the_specification() -> None:
    body = request(GENUINE.note(8), old_size=3, proof=(bytes(32), b"\xff" * 32))
    zeros, ones = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "//////////////////////////////////////////8="
    assert body == f"old 3\n{zeros}\n{ones}\n\n".encode() + GENUINE.note(8)
    assert request(GENUINE.note(8)) == b"old 0\n\n" + GENUINE.note(8)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**63 - 1), st.lists(st.binary(min_size=32, max_size=32), max_size=5))
def test_a_request_is_read_as_it_was_written(old_size: int, proof: list[bytes]) -> None:
    asked = AddCheckpoint(old_size=old_size, proof=tuple(proof), note=GENUINE.note(8))
    assert parse_request(format_request(asked)) == asked


@pytest.mark.parametrize(
    "head",
    [
        "",
        "3",
        "old",
        "old ",
        "old  3",
        "old 03",
        "old -0",
        "old +3",
        "Old 3",
        " old 3",
        "old 3 ",
        "old 3\r",
        "old 9223372036854775808",
        "old \N{ARABIC-INDIC DIGIT THREE}",
        "old 3\nAAAA",
        "old 3\n" + "A" * 44,
        "old 3\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB=",
        "\nold 3",
    ],
)
def test_each_line_must_be_as_specified_or_the_request_is_bad(head: str) -> None:
    assert refused(head.encode() + b"\n\n" + GENUINE.note(8)).refusal is Refusal.BAD_REQUEST


def test_the_client_must_not_send_more_than_63_consistency_proof_lines() -> None:
    line = b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
    assert len(parse_request(b"old 3\n" + line * HASHES_MAX + b"\n" + GENUINE.note(8)).proof) == 63
    assert refused(b"old 3\n" + line * 64 + b"\n" + GENUINE.note(8)).refusal is Refusal.BAD_REQUEST
    with pytest.raises(FormatError, match="63"):
        AddCheckpoint(old_size=3, proof=(bytes(32),) * 64, note=GENUINE.note(8))


def test_a_request_over_the_size_limit_is_refused_both_ways() -> None:
    large = b"x" * REQUEST_SIZE_BYTES_MAX + b"\n"
    with pytest.raises(FormatError, match="at most"):
        request(large)
    assert refused(b"old 0\n\n" + large).refusal is Refusal.BAD_REQUEST


@pytest.mark.parametrize("note", [b"\n", b"text\n", sign_note("no checkpoint\n", [LOG]), GENUINE.note(8)[:-1]])
def test_what_is_no_signed_checkpoint_is_a_bad_request(note: bytes) -> None:
    assert refused(b"old 0\n\n" + note).refusal is Refusal.BAD_REQUEST


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_mutated_request_is_refused_or_says_the_same(data: st.DataObject) -> None:
    body = bytearray(GENUINE.request(3, 8))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        submission = submitted(bytes(body))
        check_growth(submission, GENUINE.checkpoint(3))
    except RefusedError:
        return
    assert submission.checkpoint == GENUINE.checkpoint(8)


# Who has signed


def test_if_the_checkpoint_origin_is_unknown_the_witness_must_respond_with_404() -> None:
    stranger = replace(GENUINE.checkpoint(8), origin="log.example/stranger")
    assert refused(request(sign_note(format_checkpoint(stranger), [LOG]))).refusal is Refusal.UNKNOWN_ORIGIN


def test_without_a_signature_of_a_trusted_key_for_the_origin_it_must_respond_with_403() -> None:
    text = GENUINE.text(8)
    for signers in ([OTHER_LOG], [OTHER_LOG, OTHER_LOG]):
        assert refused(request(sign_note(text, signers))).refusal is Refusal.NOT_SIGNED


def test_a_trusted_key_whose_signature_fails_to_verify_must_be_403_whatever_else_is_signed() -> None:
    text, (good,) = parse_note(GENUINE.note(8))
    bad = replace(good, signature=bytes(64))
    for lines in ([bad], [good, bad], [bad, good]):
        assert refused(request(format_note(text, lines))).refusal is Refusal.NOT_SIGNED


def test_it_must_ignore_signatures_from_unknown_keys_and_keeps_those_of_trusted_ones_only() -> None:
    text, (good,) = parse_note(GENUINE.note(8))
    own = cosigners()[0].cosign(text, time_s=9)
    unknown = Signature(name=ORIGIN, key_id=bytes(4), signature=b"x")
    submission = submitted(request(format_note(text, [unknown, good, own])))
    assert submission.lines == (good,)
    assert submission.checkpoint == GENUINE.checkpoint(8)


# What goes on from what


def test_the_first_checkpoint_of_a_log_needs_no_proof() -> None:
    check_growth(submitted(GENUINE.request(0, 8)), None)
    check_growth(submitted(request(with_root(0, EMPTY_ROOT))), None)


@pytest.mark.parametrize(("old", "new"), [(1, 2), (3, 8), (8, 8), (7, 40), (39, 40), (0, 40)])
def test_a_checkpoint_that_goes_on_from_the_last_one_is_cosigned(old: int, new: int) -> None:
    last = GENUINE.checkpoint(old) if old else None
    check_growth(submitted(GENUINE.request(old, new)), last)
    check_growth(submitted(GENUINE.request(old, new)), GENUINE.checkpoint(old))


def test_the_old_size_must_be_equal_to_or_lower_than_the_checkpoint_size() -> None:
    assert refused(request(GENUINE.note(8), old_size=9), GENUINE.checkpoint(9)).refusal is Refusal.BAD_REQUEST


@pytest.mark.parametrize("last", [None, 0, 3, 5, 8, 40])
def test_if_the_old_size_does_not_match_it_must_respond_with_409_and_the_size(last: int | None) -> None:
    known = None if last is None else GENUINE.checkpoint(last)
    error = refused(GENUINE.request(4, 8), known)
    assert (error.refusal, error.size) == (Refusal.CONFLICT, last or 0)


def test_a_checkpoint_of_size_zero_must_have_the_root_hash_of_the_empty_tree() -> None:
    check_growth(submitted(request(with_root(0, EMPTY_ROOT))), GENUINE.checkpoint(0))
    assert refused(request(with_root(0, bytes(32)))).refusal is Refusal.INCONSISTENT


def test_if_the_old_size_is_zero_the_consistency_proof_must_be_empty() -> None:
    for size in (0, 8):
        body = request(GENUINE.note(size), proof=(bytes(32),))
        assert refused(body).refusal is Refusal.INCONSISTENT


def test_if_the_proof_does_not_verify_it_must_respond_with_422() -> None:
    last = GENUINE.checkpoint(3)
    good = tuple(GENUINE.proof(3, 8))
    for proof in ((), good[:-1], good[::-1], (*good, bytes(32)), (bytes(32), *good[1:]), (bytes(32),) * 63):
        assert refused(request(GENUINE.note(8), old_size=3, proof=proof), last).refusal is Refusal.INCONSISTENT


def test_if_the_old_size_matches_the_checkpoint_size_the_root_hashes_must_be_identical() -> None:
    check_growth(submitted(GENUINE.request(8, 8)), GENUINE.checkpoint(8))
    for body in (
        request(with_root(8, bytes(32)), old_size=8),
        request(GENUINE.note(8), old_size=8, proof=(bytes(32),)),
    ):
        assert refused(body, GENUINE.checkpoint(8)).refusal is Refusal.INCONSISTENT


def test_a_fork_is_always_refused() -> None:
    chance = random.Random(1)  # noqa: S311 - trials that can be repeated
    for _ in range(300):
        common = chance.randrange(SIZE - 1)
        last = chance.randrange(common + 1, SIZE)
        new = chance.randrange(last, SIZE + 1)
        fork = forked(GENUINE, common)
        sides = [(GENUINE, fork), (fork, GENUINE)]
        known, liar = chance.choice(sides)
        proofs = [liar.proof(last, new), known.proof(last, new), [], [chance.randbytes(32) for _ in range(6)]]
        for proof in proofs:
            body = request(liar.note(new), old_size=last, proof=tuple(proof))
            assert refused(body, known.checkpoint(last)).refusal is Refusal.INCONSISTENT
        assert refused(liar.request(0, new), known.checkpoint(last)).refusal is Refusal.CONFLICT
        check_growth(submitted(known.request(last, new)), known.checkpoint(last))


def test_a_history_of_another_log_is_none_of_this_one() -> None:
    other = History(GENUINE.leaves, OTHER_LOG)
    assert submitted(other.request(3, 8)).checkpoint.origin == OTHER_LOG.name
