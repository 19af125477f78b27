# SPDX-License-Identifier: Apache-2.0
"""Proof files: what was proved checks with file and key alone, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.encoding import SIZE_MAX, format_base64
from ledger.format.merkle import leaf_hash, prove_inclusion, root_of
from ledger.format.note import Ed25519Signer, sign_note
from ledger.format.proof import HASHES_MAX, HEADER, PROOF_SIZE_BYTES_MAX, Proof, check_proof, format_proof, parse_proof

ORIGIN = "example.com/log"
LOG = Ed25519Signer.from_seed(name=ORIGIN, seed=b"a" * 32)
OTHER_LOG = Ed25519Signer.from_seed(name="example.com/other", seed=b"b" * 32)
SIZE = 13
ENTRIES = [b'{"index":%d}' % i for i in range(SIZE)]
LEAVES = [leaf_hash(entry) for entry in ENTRIES]
CHECKPOINT = Checkpoint(origin=ORIGIN, size=SIZE, root=root_of(LEAVES))
NOTE = sign_note(format_checkpoint(CHECKPOINT), [LOG])
HASH = format_base64(bytes(32))
PROOFS = st.builds(
    Proof,
    extra=st.binary(max_size=20),
    index=st.integers(min_value=0, max_value=SIZE_MAX),
    hashes=st.lists(st.binary(min_size=32, max_size=32), max_size=5).map(tuple),
    checkpoint=st.binary(min_size=1, max_size=30) | st.just(NOTE),
)


def read(level: int, index: int) -> bytes:
    return root_of(LEAVES[index << level : (index + 1) << level])


def proof_of(index: int) -> Proof:
    hashes = prove_inclusion(index=index, size=SIZE, read=read)
    return Proof(extra=ENTRIES[index], index=index, hashes=tuple(hashes), checkpoint=NOTE)


def assert_broken(proof: Proof, fault: Fault, *keys: Ed25519Signer) -> None:
    with pytest.raises(BrokenError) as caught:
        check_proof(format_proof(proof), [key.verifier_key for key in keys or (LOG,)])
    assert caught.value.fault is fault


@pytest.mark.parametrize("index", range(SIZE))
def test_every_entry_is_proved_by_file_and_key(index: int) -> None:
    proven = check_proof(format_proof(proof_of(index)), [LOG.verifier_key])
    assert (proven.entry, proven.index, proven.checkpoint) == (ENTRIES[index], index, CHECKPOINT)


def test_the_file_has_the_lines_of_the_specification() -> None:
    # tlog-proof, "Format".
    proof = Proof(extra=b"entry", index=7, hashes=(bytes(32), b"\xff" * 32), checkpoint=NOTE)
    ones = "//////////////////////////////////////////8="
    expected = f"c2sp.org/tlog-proof@v1\nextra ZW50cnk=\nindex 7\n{HASH}\n{ones}\n\n".encode() + NOTE
    assert format_proof(proof) == expected
    assert format_proof(replace(proof, extra=b"", hashes=())) == b"c2sp.org/tlog-proof@v1\nindex 7\n\n" + NOTE


@settings(max_examples=40, deadline=None)
@given(PROOFS)
def test_a_proof_is_read_as_it_was_written(proof: Proof) -> None:
    assert parse_proof(format_proof(proof)) == proof


def test_a_proof_with_any_byte_changed_proves_nothing() -> None:
    data = format_proof(proof_of(5))
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        with pytest.raises((FormatError, BrokenError)):
            check_proof(bytes(changed), [LOG.verifier_key])


def test_a_proof_cut_anywhere_proves_nothing() -> None:
    data = format_proof(proof_of(5))
    for end in range(len(data)):
        with pytest.raises((FormatError, BrokenError)):
            check_proof(data[:end], [LOG.verifier_key])


def test_a_changed_entry_index_or_hash_is_detected() -> None:
    good = proof_of(5)
    assert_broken(replace(good, extra=ENTRIES[6]), Fault.PROOF)
    assert_broken(replace(good, index=6), Fault.PROOF)
    assert_broken(replace(good, index=SIZE), Fault.PROOF)
    assert_broken(replace(good, hashes=good.hashes[:-1]), Fault.PROOF)
    assert_broken(replace(good, hashes=(*good.hashes, bytes(32))), Fault.PROOF)
    assert_broken(replace(good, hashes=good.hashes[::-1]), Fault.PROOF)


def test_a_checkpoint_of_another_log_or_another_tree_is_detected() -> None:
    good = proof_of(5)
    assert_broken(good, Fault.SIGNATURE, OTHER_LOG)
    text = format_checkpoint(CHECKPOINT)
    assert_broken(replace(good, checkpoint=sign_note(text, [OTHER_LOG])), Fault.SIGNATURE)
    assert_broken(replace(good, checkpoint=sign_note(text, [OTHER_LOG])), Fault.SIGNATURE, LOG, OTHER_LOG)
    shorter = format_checkpoint(replace(CHECKPOINT, size=SIZE - 1, root=root_of(LEAVES[:-1])))
    assert_broken(replace(good, checkpoint=sign_note(shorter, [LOG])), Fault.PROOF)


def test_no_keys_prove_nothing() -> None:
    with pytest.raises(BrokenError):
        check_proof(format_proof(proof_of(5)), [])


def test_a_file_without_the_entry_proves_nothing() -> None:
    with pytest.raises(FormatError, match="extra"):
        check_proof(format_proof(replace(proof_of(5), extra=b"")), [LOG.verifier_key])


def test_the_key_of_another_log_may_be_among_the_keys() -> None:
    proven = check_proof(format_proof(proof_of(5)), [OTHER_LOG.verifier_key, LOG.verifier_key])
    assert proven.checkpoint.origin == ORIGIN


@pytest.mark.parametrize(
    "head",
    [
        "",
        HEADER,
        f"{HEADER}\nextra AA==",
        f"{HEADER} \nindex 7",
        "c2sp.org/tlog-proof@v2\nindex 7",
        f"\n{HEADER}\nindex 7",
        "index 7",
        f"{HEADER}\nindex 7\nextra AA==",
        f"{HEADER}\nextra AA==\nextra AA==\nindex 7",
        f"{HEADER}\nextra \nindex 7",
        f"{HEADER}\nextra\nindex 7",
        f"{HEADER}\nextra AA\nindex 7",
        f"{HEADER}\nextra AB==\nindex 7",
        f"{HEADER}\nextra  AA==\nindex 7",
        f"{HEADER}\nExtra AA==\nindex 7",
        f"{HEADER}\nAA==\nindex 7",
        f"{HEADER}\nindex",
        f"{HEADER}\nindex ",
        f"{HEADER}\nindex 07",
        f"{HEADER}\nindex -7",
        f"{HEADER}\nindex  7",
        f"{HEADER}\nindex 7 ",
        f"{HEADER}\nindex index 7",
        f"{HEADER}\n7",
        f"{HEADER}\nindex {SIZE_MAX + 1}",
        f"{HEADER}\nindex {'7' * 5000}",
        f"{HEADER}\nindex \N{ARABIC-INDIC DIGIT SEVEN}",
        f"{HEADER}\nindex 7\n{HASH} ",
        f"{HEADER}\nindex 7\n{HASH[:-1]}",
        f"{HEADER}\nindex 7\nAAAA",
        f"{HEADER}\nindex 7\nAAAA{HASH}",
        f"{HEADER}\r\nindex 7",
        f"{HEADER}\nindex 7" + f"\n{HASH}" * (HASHES_MAX + 1),
        f"{HEADER}\nindex 7" + f"\n{HASH}" * 1000,
    ],
)
def test_another_spelling_of_a_proof_is_a_format_error(head: str) -> None:
    assert parse_proof(f"{HEADER}\nindex 7\n\n".encode() + NOTE).index == 7
    with pytest.raises(FormatError):
        parse_proof(head.encode() + b"\n\n" + NOTE)


def test_a_proof_without_an_empty_line_or_a_checkpoint_is_a_format_error() -> None:
    for data in [f"{HEADER}\nindex 7\n", f"{HEADER}\nindex 7\n\n", f"{HEADER}\nindex 7\n{HASH}"]:
        with pytest.raises(FormatError):
            parse_proof(data.encode())


def test_the_longest_proof_is_read() -> None:
    proof = Proof(extra=b"x" * 65_535, index=SIZE_MAX, hashes=(bytes(32),) * HASHES_MAX, checkpoint=NOTE)
    assert parse_proof(format_proof(proof)) == proof


def test_a_proof_over_the_size_limit_is_refused_both_ways() -> None:
    proof = Proof(extra=b"x" * PROOF_SIZE_BYTES_MAX, index=7, hashes=(), checkpoint=NOTE)
    with pytest.raises(FormatError, match="at most"):
        format_proof(proof)
    with pytest.raises(FormatError, match="at most"):
        parse_proof(f"{HEADER}\nindex 7\n\n".encode() + bytes(PROOF_SIZE_BYTES_MAX))


@pytest.mark.parametrize(
    "fields",
    [
        {"index": -1},
        {"index": SIZE_MAX + 1},
        {"hashes": (bytes(31),)},
        {"hashes": (bytes(32),) * 64},
        {"checkpoint": b""},
    ],
)
def test_a_proof_that_could_not_be_read_again_cannot_be_made(fields: dict[str, object]) -> None:
    with pytest.raises(FormatError, match="proof"):
        replace(proof_of(5), **fields)  # type: ignore[arg-type]  # fields of several types


@settings(max_examples=50, deadline=None)
@given(
    st.binary(max_size=60)
    | st.lists(
        st.sampled_from([HEADER, "\n", "extra ", "index ", "AA==", "7", "0", HASH, NOTE.decode(), " "]), max_size=12
    ).map(lambda parts: "".join(parts).encode())
)
def test_arbitrary_bytes_are_a_proof_or_one_of_our_errors(data: bytes) -> None:
    try:
        assert format_proof(parse_proof(data)) == data
        check_proof(data, [LOG.verifier_key])
    except (FormatError, BrokenError):
        pass
