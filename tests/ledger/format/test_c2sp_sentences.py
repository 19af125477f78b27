# SPDX-License-Identifier: Apache-2.0
"""
Sentences of signed-note, tlog-checkpoint, tlog-tiles and tlog-proof that bind us and have no test under their own name.

Those of tlog-cosignature, tlog-witness and tlog-policy are in the files of these names; here, too, every parser of the
four is given valid inputs that were mutated.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import BrokenError, FormatError
from ledger.format.checkpoint import parse_checkpoint
from ledger.format.merkle import leaf_hash, prove_inclusion, root_of
from ledger.format.note import Signature, VerifierKey, format_note, open_checkpoint, open_note, parse_note
from ledger.format.proof import Proof, check_proof, check_witnessed_proof, format_proof, parse_proof
from ledger.format.tiles import Tile, complete_tiles, parse_bundle_path, parse_tile_path, tile_path, tile_width
from ledger.format.witness_policy import PolicyLog, PolicyWitness, UnwitnessedError, WitnessPolicy
from testkit.fuzzing.targets import targets
from testkit.ledger.witnesses import GENUINE, LOG, ORIGIN, SIZE, TIME_S, History, cosigners

NOTE = GENUINE.note(8)
TEXT, (LINE,) = parse_note(NOTE)
TARGETS = targets()

# signed-note


def test_the_text_must_be_ignored_unless_the_note_is_signed_by_a_trusted_key() -> None:
    assert open_note(NOTE, [LOG.verifier_key]).text == TEXT
    for keys in ([], [cosigners()[0].verifier_key]):
        with pytest.raises(BrokenError):
            open_note(NOTE, keys)


@pytest.mark.parametrize("octets", [*(bytes([c]) for c in range(32) if c != 10), b"\xff", b"\xc3", b"\xed\xa0\x80"])
def test_signed_notes_must_be_utf_8_and_must_not_contain_control_characters_other_than_newline(octets: bytes) -> None:
    assert parse_note(b"x" + NOTE)
    for at in (0, 5, NOTE.index(b"\n"), len(NOTE) - 5):
        with pytest.raises(FormatError):
            parse_note(NOTE[:at] + octets + NOTE[at:])


def test_the_text_is_separated_from_the_signatures_by_the_last_empty_line() -> None:
    text, lines = parse_note(b"a\n\n" + LINE.format().encode() + b"\n" + LINE.format().encode())
    assert (text, lines) == (f"a\n\n{LINE.format()}", (LINE,))


def test_verifiers_must_ignore_unknown_keys_even_if_they_share_a_name_or_id_but_not_both() -> None:
    same_name = replace(LINE, key_id=bytes(4), signature=b"x")
    same_id = replace(LINE, name="log.example/else", signature=b"x")
    note = format_note(TEXT, [same_name, LINE, same_id])
    assert open_note(note, [LOG.verifier_key]).unverified == (same_name, same_id)
    with pytest.raises(BrokenError):
        open_note(format_note(TEXT, [same_name, same_id]), [LOG.verifier_key])


def test_if_the_key_name_and_id_match_a_known_key_verifiers_must_verify_the_signature() -> None:
    with pytest.raises(BrokenError):
        open_note(format_note(TEXT, [LINE, replace(LINE, signature=bytes(64))]), [LOG.verifier_key])


def test_the_key_name_and_id_of_a_verifier_key_must_match_those_in_the_signatures() -> None:
    key = LOG.verifier_key
    with pytest.raises(FormatError, match="key id"):
        VerifierKey(name=ORIGIN, key_id=bytes(4), algorithm=key.algorithm, public=key.public)
    with pytest.raises(BrokenError):
        open_note(NOTE, [VerifierKey.ed25519(name="log.example/else", public=key.public)])


def test_sixteen_post_quantum_signatures_are_accepted() -> None:
    lines = [Signature(name=f"w{n}", key_id=bytes(4), signature=bytes(5_000)) for n in range(16)]
    assert open_note(format_note(TEXT, [*lines, LINE]), [LOG.verifier_key]).unverified == tuple(lines)


# tlog-checkpoint


def test_the_origin_must_be_non_empty_and_clients_must_not_assume_a_format_of_it() -> None:
    _, size, root, _ = TEXT.split("\n")
    for origin in ("o", "a b", "a+b", "\N{SNOWMAN}", "http://x/", "0", " "):
        assert parse_checkpoint(f"{origin}\n{size}\n{root}\n").origin == origin
    with pytest.raises(FormatError):
        parse_checkpoint(f"\n{size}\n{root}\n")


def test_extension_lines_must_be_non_empty() -> None:
    assert parse_checkpoint(f"{TEXT}one\ntwo\n").extensions == ("one", "two")
    for bad in (f"{TEXT}\n", f"{TEXT}\none\n", f"{TEXT}one\n\n"):
        with pytest.raises(FormatError):
            parse_checkpoint(bad)


def test_clients_must_ignore_unknown_signatures() -> None:
    note = NOTE + cosigners()[1].cosign(TEXT, time_s=TIME_S).format().encode()
    assert open_checkpoint(note, [LOG.verifier_key]) == GENUINE.checkpoint(8)


# tlog-tiles


def test_the_level_must_be_a_decimal_from_0_to_63_with_no_additional_leading_zeroes() -> None:
    for level in (0, 9, 10, 63):
        assert parse_tile_path(f"tile/{level}/000") == (level, 0, 256)
    for bad in ("64", "00", "063", "-1", "+1", "0x1"):
        with pytest.raises(FormatError):
            parse_tile_path(f"tile/{bad}/000")


def test_all_but_the_last_path_element_must_begin_with_an_x() -> None:
    assert parse_bundle_path("tile/entries/x001/x234/067") == (1_234_067, 256)
    for bad in ("001/234/067", "x001/234/067", "x001/x234/x067", "x000/x001/067", "1/067"):
        with pytest.raises(FormatError):
            parse_bundle_path(f"tile/entries/{bad}")


def test_full_tiles_must_be_exactly_256_hashes_wide_and_partial_ones_1_to_255() -> None:
    hashes = GENUINE.leaves[:1] * 256
    assert len(Tile(level=0, index=0, hashes=tuple(hashes)).pack()) == 8_192
    for bad in ((), (*hashes, hashes[0])):
        with pytest.raises(FormatError):
            Tile(level=0, index=0, hashes=bad)
    assert [parse_tile_path(f"tile/0/000.p/{width}")[2] for width in (1, 255)] == [1, 255]
    for width in (0, 256):
        with pytest.raises(FormatError):
            parse_tile_path(f"tile/0/000.p/{width}")


def test_a_partial_tile_must_not_be_hashed_into_a_tile_at_the_level_above() -> None:
    leaf = GENUINE.leaves[0]
    assert complete_tiles(size=0, pending=(), leaves=[leaf] * 255) == ([], ((leaf,) * 255,))
    tiles, pending = complete_tiles(size=0, pending=(), leaves=[leaf] * 256)
    assert [tile_path(tile.level, tile.index) for tile in tiles] == ["tile/0/000"]
    assert pending == ((), (root_of([leaf] * 256),))


def test_empty_tiles_must_not_be_served() -> None:
    assert [tile_width(level=1, index=0, size=size) for size in (255, 256)] == [0, 1]
    with pytest.raises(FormatError):
        tile_path(1, 0, 0)


# tlog-proof

ENTRIES = [str(number).encode() for number in range(SIZE)]
PROVEN = History([leaf_hash(entry) for entry in ENTRIES])


def proof_of(note: bytes) -> bytes:
    hashes = tuple(prove_inclusion(index=5, size=SIZE, read=PROVEN.read))
    return format_proof(Proof(extra=ENTRIES[5], index=5, hashes=hashes, checkpoint=note))


def test_the_first_line_must_be_the_header_and_the_next_the_index() -> None:
    data = proof_of(PROVEN.note(SIZE))
    head, extra, index, rest = data.split(b"\n", 3)
    assert (head, index) == (b"c2sp.org/tlog-proof@v1", b"index 5")
    for lines in ([extra, index], [head, index, extra], [head, extra], [head, head, extra, index]):
        with pytest.raises(FormatError):
            parse_proof(b"\n".join([*lines, rest]))


def test_applications_must_not_implicitly_trust_the_extra_data() -> None:
    parsed = parse_proof(proof_of(PROVEN.note(SIZE)))
    with pytest.raises(BrokenError):
        check_proof(format_proof(replace(parsed, extra=b"another entry")), [LOG.verifier_key])


def test_the_cosignatures_of_a_proof_are_held_against_a_policy() -> None:
    ed25519, ml_dsa_44 = cosigners()
    witnesses = tuple(PolicyWitness(name=f"w{c.verifier_key.algorithm}", key=c.verifier_key) for c in cosigners())
    policy = WitnessPolicy(logs=(PolicyLog(key=LOG.verifier_key),), witnesses=witnesses, groups=(), quorum="w6")
    text, lines = parse_note(PROVEN.note(SIZE))
    witnessed = format_note(text, [*lines, ml_dsa_44.cosign(text, time_s=TIME_S)])
    assert check_witnessed_proof(proof_of(witnessed), policy).entry == ENTRIES[5]
    without_log = replace(policy, logs=())
    assert check_witnessed_proof(proof_of(witnessed), without_log, logs=[LOG.verifier_key]).index == 5
    with pytest.raises(BrokenError):
        check_witnessed_proof(proof_of(witnessed), without_log)
    for note in (PROVEN.note(SIZE), format_note(text, [*lines, ed25519.cosign(text, time_s=TIME_S)])):
        assert check_proof(proof_of(note), [LOG.verifier_key]).entry == ENTRIES[5]
        with pytest.raises(UnwitnessedError):
            check_witnessed_proof(proof_of(note), policy)
    with pytest.raises(BrokenError):
        check_witnessed_proof(proof_of(witnessed).replace(b"index 5", b"index 6"), policy)


# Every parser, given what was valid


@pytest.mark.parametrize("name", sorted(TARGETS))
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_mutated_input_raises_no_error_but_ours(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    given_bytes = bytearray(data.draw(st.sampled_from(target.seeds)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(given_bytes)))
        copied = data.draw(st.sampled_from([b"", bytes(given_bytes[:at]), bytes(given_bytes[at:])]))[:200]
        given_bytes[at : at + data.draw(st.integers(0, 3))] = copied + data.draw(st.binary(max_size=3))
    target.run(bytes(given_bytes))


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_an_example_of_each_parser_is_accepted_by_it(name: str) -> None:
    for seed in TARGETS[name].seeds:
        TARGETS[name].accepts(seed)
        TARGETS[name].run(seed)
