# SPDX-License-Identifier: Apache-2.0
"""Cosignatures: each sentence of tlog-cosignature that binds us, both types, and every byte changed."""

from __future__ import annotations

import base64
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.cosignature import (
    COSIGNATURE_TYPES,
    Cosigner,
    format_cosignatures,
    open_cosignatures,
    parse_cosignatures,
)
from ledger.format.note import Signature, VerifierKey, format_note, open_checkpoint, open_note, parse_note
from ledger.format.signature import (
    ED25519,
    ED25519_COSIGNATURE,
    ML_DSA_44_COSIGNATURE,
    TIME_MAX_S,
    TYPES,
    cosigned_at,
    private_key,
    signed_message,
)
from testkit.ledger.witnesses import GENUINE, LOG, NAME, TIME_S, cosigners, timeless

TEXT = GENUINE.text(7)
ROOT = GENUINE.checkpoint(7).root
ED, PQ = cosigners()
BOTH = [ED.verifier_key, PQ.verifier_key]
EXTENDED = format_checkpoint(replace(GENUINE.checkpoint(7), extensions=("an extension",)))


def assert_broken(text: str, line: Signature, cosigner: Cosigner) -> None:
    with pytest.raises(BrokenError) as caught:
        open_cosignatures(text, [line], [cosigner.verifier_key])
    assert caught.value.fault is Fault.SIGNATURE


def test_the_ed25519_message_is_the_specifications_example() -> None:
    # tlog-cosignature, "Ed25519 signed message".
    text = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    message = signed_message(ED25519_COSIGNATURE, name="any", text=text.encode(), time_s=1_679_315_147)
    assert message.decode() == f"cosignature/v1\ntime 1679315147\n{text}"


def test_the_example_cosignature_carries_the_time_of_the_example() -> None:
    # tlog-cosignature, the checkpoint at its head; its keys are not published.
    line = "jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA=="
    signature = base64.b64decode(line)[4:]
    assert len(signature) == TYPES[ED25519_COSIGNATURE].signature_size_bytes
    assert cosigned_at(signature) == 1_679_315_147


def test_the_ml_dsa_44_message_is_the_cosigned_message_structure() -> None:
    message = signed_message(ML_DSA_44_COSIGNATURE, name=NAME, text=TEXT.encode(), time_s=TIME_S)
    expected = (
        b"subtree/v1\n\x00"
        + bytes([len(NAME)])
        + NAME.encode()
        + TIME_S.to_bytes(8, "big")
        + bytes([len(LOG.name)])
        + LOG.name.encode()
        + bytes(8)  # "If signing a checkpoint, start MUST be zero"
        + (7).to_bytes(8, "big")  # "it is the size of the tree"
        + ROOT
    )
    assert message == expected
    assert len(b"subtree/v1\n\x00") == 12


@pytest.mark.parametrize("cosigner", [ED, PQ])
def test_the_key_id_must_be_computed_from_name_type_and_public_key(cosigner: Cosigner) -> None:
    key = cosigner.verifier_key
    assert key.key_id == sha256(NAME.encode() + b"\n" + bytes([key.algorithm]) + key.public).digest()[:4]
    assert len(key.public) == {ED25519_COSIGNATURE: 32, ML_DSA_44_COSIGNATURE: 1312}[key.algorithm]
    assert VerifierKey.parse(key.format()) == key
    with pytest.raises(FormatError, match="key id"):
        replace(key, key_id=bytes(4))


@pytest.mark.parametrize("cosigner", [ED, PQ])
def test_the_signature_must_be_a_timestamped_signature_structure(cosigner: Cosigner) -> None:
    line = cosigner.cosign(TEXT, time_s=TIME_S)
    assert (
        len(line.signature)
        == {ED25519_COSIGNATURE: 8 + 64, ML_DSA_44_COSIGNATURE: 8 + 2420}[cosigner.verifier_key.algorithm]
    )
    assert line.signature[:8] == TIME_S.to_bytes(8, "big")
    assert open_cosignatures(TEXT, [line], BOTH) == {cosigner.verifier_key: TIME_S}
    for changed in [line.signature[:-1], line.signature + b"\x00", line.signature[8:], b"x"]:
        assert_broken(TEXT, replace(line, signature=changed), cosigner)


@pytest.mark.parametrize("cosigner", [ED, PQ])
def test_the_timestamp_must_not_exceed_2_to_the_63_minus_1(cosigner: Cosigner) -> None:
    line = cosigner.cosign(TEXT, time_s=TIME_MAX_S)
    assert open_cosignatures(TEXT, [line], BOTH) == {cosigner.verifier_key: TIME_MAX_S}
    with pytest.raises(FormatError, match="time"):
        cosigner.cosign(TEXT, time_s=TIME_MAX_S + 1)
    later = f"cosignature/v1\ntime {TIME_MAX_S + 1}\n{TEXT}".encode()
    forged = (TIME_MAX_S + 1).to_bytes(8, "big") + private_key(ED25519, b"w" * 32).sign(later)
    assert_broken(TEXT, replace(ED.cosign(TEXT, time_s=1), signature=forged), ED)


@pytest.mark.parametrize("cosigner", [ED, PQ])
@pytest.mark.parametrize("time_s", [0, -1])
def test_a_witness_makes_no_cosignature_without_a_time(cosigner: Cosigner, time_s: int) -> None:
    with pytest.raises(FormatError, match="time"):
        cosigner.cosign(TEXT, time_s=time_s)


@pytest.mark.parametrize("cosigner", [ED, PQ])
def test_a_cosignature_with_any_byte_changed_does_not_open(cosigner: Cosigner) -> None:
    line = cosigner.cosign(TEXT, time_s=TIME_S)
    step = 1 if cosigner is ED else 37
    for at in [*range(12), *range(12, len(line.signature), step), len(line.signature) - 1]:
        changed = bytearray(line.signature)
        changed[at] ^= 1 << at % 8
        assert_broken(TEXT, replace(line, signature=bytes(changed)), cosigner)


@pytest.mark.parametrize("cosigner", [ED, PQ])
def test_a_cosignature_is_of_one_origin_size_and_root(cosigner: Cosigner) -> None:
    line = cosigner.cosign(TEXT, time_s=TIME_S)
    for other in [
        replace(GENUINE.checkpoint(7), origin="log.example/other"),
        replace(GENUINE.checkpoint(7), size=8),
        replace(GENUINE.checkpoint(7), root=bytes(32)),
    ]:
        assert_broken(format_checkpoint(other), line, cosigner)


def test_extension_lines_must_be_included_in_the_ed25519_message_and_are_not_in_that_of_ml_dsa_44() -> None:
    assert EXTENDED.encode() in signed_message(ED25519_COSIGNATURE, name=NAME, text=EXTENDED.encode(), time_s=1)
    assert_broken(EXTENDED, ED.cosign(TEXT, time_s=TIME_S), ED)
    assert open_cosignatures(EXTENDED, [PQ.cosign(TEXT, time_s=TIME_S)], BOTH) == {PQ.verifier_key: TIME_S}


def test_the_ml_dsa_44_message_commits_to_the_cosigners_name() -> None:
    renamed = Cosigner.from_seed(ML_DSA_44_COSIGNATURE, name="witness.example/w2", seed=b"w" * 32)
    line = PQ.cosign(TEXT, time_s=TIME_S)
    moved = Signature(name="witness.example/w2", key_id=renamed.verifier_key.key_id, signature=line.signature)
    assert renamed.verifier_key.public == PQ.verifier_key.public
    assert_broken(TEXT, moved, renamed)


@pytest.mark.parametrize("cosigner", [ED, PQ])
def test_a_text_that_is_no_checkpoint_is_neither_cosigned_nor_opened(cosigner: Cosigner) -> None:
    for text in ["hello\n", "log\n07\n" + TEXT.split("\n")[2] + "\n"]:
        with pytest.raises(FormatError):
            cosigner.cosign(text, time_s=TIME_S)
        assert_broken(text, cosigner.cosign(TEXT, time_s=TIME_S), cosigner)


def test_names_that_the_structure_cannot_hold_are_refused() -> None:
    long = "o" * 256
    text = format_checkpoint(Checkpoint(origin=long, size=7, root=ROOT))
    ED.cosign(text, time_s=TIME_S)
    with pytest.raises(FormatError, match="255"):
        PQ.cosign(text, time_s=TIME_S)
    assert_broken(text, PQ.cosign(TEXT, time_s=TIME_S), PQ)
    with pytest.raises(FormatError, match="255"):
        Cosigner.from_seed(ML_DSA_44_COSIGNATURE, name=long, seed=b"w" * 32)
    Cosigner.from_seed(ED25519_COSIGNATURE, name=long, seed=b"w" * 32)


def test_a_key_of_a_log_is_no_cosigner() -> None:
    with pytest.raises(FormatError, match="cosigner"):
        Cosigner.from_seed(ED25519, name=NAME, seed=b"w" * 32)
    plain = VerifierKey.of(ED25519, name=NAME, public=ED.verifier_key.public)
    line = Signature(name=NAME, key_id=plain.key_id, signature=private_key(ED25519, b"w" * 32).sign(TEXT.encode()))
    assert open_cosignatures(TEXT, [line], [plain]) == {}


def test_one_key_has_another_id_for_each_type() -> None:
    plain = VerifierKey.of(ED25519, name=NAME, public=ED.verifier_key.public)
    assert plain.key_id != ED.verifier_key.key_id


@pytest.mark.parametrize("size", [0, 31, 33, 1311, 1313])
@pytest.mark.parametrize("algorithm", COSIGNATURE_TYPES)
def test_a_public_key_of_another_size_is_a_format_error(algorithm: int, size: int) -> None:
    with pytest.raises(FormatError, match="verifier key"):
        VerifierKey.of(algorithm, name=NAME, public=bytes(size))


@pytest.mark.parametrize("algorithm", [0, 2, 3, 5, 7, 0xFF])
def test_a_key_of_a_type_that_we_do_not_verify_is_a_format_error(algorithm: int) -> None:
    with pytest.raises(FormatError, match="verifier key"):
        VerifierKey.of(algorithm, name=NAME, public=bytes(32))


def test_a_note_opens_with_the_keys_of_log_and_witness_and_keeps_what_is_unknown() -> None:
    lines = [cosigner.cosign(TEXT, time_s=TIME_S) for cosigner in (ED, PQ)]
    note = format_note(TEXT, [*parse_note(GENUINE.note(7))[1], *lines])
    assert open_note(note, [LOG.verifier_key, *BOTH]).verified == (LOG.verifier_key, *BOTH)
    assert open_note(note, [LOG.verifier_key]).unverified == tuple(lines)
    assert open_checkpoint(note, [LOG.verifier_key, *BOTH]) == GENUINE.checkpoint(7)
    with pytest.raises(BrokenError):  # a witness does not stand in for the log
        open_checkpoint(note, BOTH)


def test_lines_of_unknown_keys_are_ignored_and_the_first_of_two_lines_counts() -> None:
    lines = [PQ.cosign(TEXT, time_s=9), ED.cosign(TEXT, time_s=5), ED.cosign(TEXT, time_s=3)]
    assert open_cosignatures(TEXT, lines, [ED.verifier_key]) == {ED.verifier_key: 5}
    bad = replace(lines[2], signature=bytes(72))
    with pytest.raises(BrokenError):
        open_cosignatures(TEXT, [*lines, bad], [ED.verifier_key])


@pytest.mark.parametrize("cosigner", [ED, PQ])
def test_of_two_lines_of_a_key_the_first_with_a_time_counts(cosigner: Cosigner) -> None:
    key, none, timed = cosigner.verifier_key, timeless(cosigner, TEXT), cosigner.cosign(TEXT, time_s=9)
    assert open_cosignatures(TEXT, [none], [key]) == {key: 0}
    for lines in ([none, timed], [timed, none], [none, timed, cosigner.cosign(TEXT, time_s=12)]):
        assert open_cosignatures(TEXT, lines, [key]) == {key: 9}


def test_the_private_key_is_in_no_text_form_of_a_cosigner() -> None:
    for cosigner in (ED, PQ):
        for shown in (repr(cosigner), str(cosigner), repr([cosigner])):
            assert "w" * 32 not in shown
            assert (b"w" * 32).hex() not in shown


def test_an_answer_is_read_as_it_was_written_and_holds_nothing_but_lines() -> None:
    lines = (ED.cosign(TEXT, time_s=TIME_S), PQ.cosign(TEXT, time_s=TIME_S))
    data = format_cosignatures(lines)
    assert data.startswith("— ".encode())
    assert data.endswith(b"\n")
    assert parse_cosignatures(data) == lines
    with pytest.raises(FormatError):
        format_cosignatures([])
    for other in [b"", b"\n", data[:-1], b"\n" + data, data + b"\n", data.replace(b"\n", b"\n\n"), b"text\n" + data]:
        with pytest.raises(FormatError):
            parse_cosignatures(other)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_changed_answer_is_the_same_lines_or_a_format_error(data: st.DataObject) -> None:
    answer = bytearray(format_cosignatures([ED.cosign(TEXT, time_s=TIME_S)]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(answer) - 1))
        answer[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        lines = parse_cosignatures(bytes(answer))
    except FormatError:
        return
    assert format_cosignatures(lines) == answer
