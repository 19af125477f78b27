# SPDX-License-Identifier: Apache-2.0
"""Signed notes: known answers of others, every byte changed, and the rules on known and unknown keys."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.encoding import format_base64, parse_base64
from ledger.format.note import (
    NOTE_SIZE_BYTES_MAX,
    SIGNATURES_MAX,
    Ed25519Signer,
    Note,
    Signature,
    Signer,
    VerifierKey,
    format_note,
    open_note,
    parse_note,
    sign_note,
)

# Key and note of the documentation of golang.org/x/mod/sumdb/note.
NEUMANN = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
NEUMANN_NOTE = """\
If you think cryptography is the answer to your problem,
then you don't know what your problem is.

— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=
""".encode()

# The key of the Go checksum database, which every Go toolchain carries.
SUM_DATABASE = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"

ALICE = Ed25519Signer.from_seed(name="example.com/alice", seed=b"a" * 32)
BOB = Ed25519Signer.from_seed(name="example.com/bob", seed=b"b" * 32)
TEXT = "first line\n\nthird line, é 😂\n"
NAMES = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Z"], exclude_characters="+"), min_size=1, max_size=8
).filter(lambda name: not any(c.isspace() for c in name))
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=[chr(c) for c in range(32)]) | st.just("\n")
)
SIGNATURES = st.builds(
    Signature, name=NAMES, key_id=st.binary(min_size=4, max_size=4), signature=st.binary(min_size=1, max_size=70)
)


def opened(note: bytes, *signers: Signer) -> Note:
    return open_note(note, [signer.verifier_key for signer in signers])


def assert_bad_signature(note: bytes, *signers: Signer) -> None:
    with pytest.raises(BrokenError) as caught:
        opened(note, *signers)
    assert caught.value.fault is Fault.SIGNATURE


def test_a_note_of_gos_documentation_opens_and_its_keys_are_read() -> None:
    note = open_note(NEUMANN_NOTE, [VerifierKey.parse(NEUMANN)])
    assert note.text.startswith("If you think")
    assert note.verified == (VerifierKey.parse(NEUMANN),)
    assert VerifierKey.parse(NEUMANN).format() == NEUMANN
    assert VerifierKey.parse(SUM_DATABASE).format() == SUM_DATABASE
    with pytest.raises(BrokenError):
        open_note(NEUMANN_NOTE, [VerifierKey.parse(SUM_DATABASE)])


def test_keys_and_signatures_are_those_of_rfc_8032() -> None:
    # RFC 8032, section 7.1, TEST 3.
    seed = bytes.fromhex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7")
    signer = Ed25519Signer.from_seed(name="test", seed=seed)
    assert signer.verifier_key.public.hex() == "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"
    assert signer.sign(b"\xaf\x82").hex() == (
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
    )


@settings(max_examples=20, deadline=None)
@given(NAMES, st.binary(min_size=32, max_size=32), TEXTS.map(lambda text: text + "\n"))
def test_what_was_signed_opens(name: str, seed: bytes, text: str) -> None:
    signer = Ed25519Signer.from_seed(name=name, seed=seed)
    assert opened(sign_note(text, [signer]), signer) == Note(text=text, verified=(signer.verifier_key,), unverified=())
    assert VerifierKey.parse(signer.verifier_key.format()) == signer.verifier_key


def test_a_note_with_any_byte_changed_does_not_open() -> None:
    note = sign_note(TEXT, [ALICE])
    for at in range(len(note)):
        changed = bytearray(note)
        changed[at] ^= 1 << at % 8
        with pytest.raises((FormatError, BrokenError)):
            opened(bytes(changed), ALICE)


def test_a_note_cut_or_lengthened_does_not_open() -> None:
    note = sign_note(TEXT, [ALICE])
    for end in range(len(note)):
        with pytest.raises((FormatError, BrokenError)):
            opened(note[:end], ALICE)
    for more in [b"\n", b"x", b"\n\n", b" "]:
        with pytest.raises((FormatError, BrokenError)):
            opened(note + more, ALICE)
        with pytest.raises((FormatError, BrokenError)):
            opened(more + note, ALICE)


def test_signatures_of_unknown_keys_are_kept_and_ignored() -> None:
    note = opened(sign_note(TEXT, [BOB, ALICE]), ALICE)
    assert note.verified == (ALICE.verifier_key,)
    bobs = Signature(name=BOB.name, key_id=BOB.verifier_key.key_id, signature=BOB.sign(TEXT.encode()))
    assert note.unverified == (bobs,)


def test_a_known_key_with_a_bad_signature_refuses_the_whole_note() -> None:
    text, (good, bobs) = parse_note(sign_note(TEXT, [ALICE, BOB]))
    for bad in [
        replace(bobs, signature=good.signature),
        replace(bobs, signature=b"x"),
        replace(bobs, signature=bytes(64)),
    ]:
        note = format_note(text, [good, bad])
        assert opened(note, ALICE).verified == (ALICE.verifier_key,)
        assert_bad_signature(note, ALICE, BOB)
        assert_bad_signature(format_note(text, [bad, good]), ALICE, BOB)


def test_a_second_line_of_one_key_must_verify_too_and_counts_once() -> None:
    text, (good,) = parse_note(sign_note(TEXT, [ALICE]))
    assert opened(format_note(text, [good, good]), ALICE).verified == (ALICE.verifier_key,)
    assert_bad_signature(format_note(text, [good, replace(good, signature=bytes(64))]), ALICE)


def test_a_note_without_a_known_signature_does_not_open() -> None:
    assert_bad_signature(sign_note(TEXT, [ALICE]), BOB)
    assert_bad_signature(sign_note(TEXT, [ALICE]))


def test_the_same_key_under_another_name_is_another_key() -> None:
    renamed = Ed25519Signer.from_seed(name="example.com/carol", seed=b"a" * 32)
    assert renamed.verifier_key.public == ALICE.verifier_key.public
    assert renamed.verifier_key.key_id != ALICE.verifier_key.key_id
    assert_bad_signature(sign_note(TEXT, [renamed]), ALICE)


def test_a_signature_over_another_text_does_not_verify() -> None:
    _, signatures = parse_note(sign_note(TEXT, [ALICE]))
    assert_bad_signature(format_note("another text\n", signatures), ALICE)


def test_a_key_may_be_named_twice_but_not_two_under_one_name_and_id() -> None:
    note = sign_note(TEXT, [ALICE])
    assert opened(note, ALICE, ALICE).verified == (ALICE.verifier_key,)
    twin = VerifierKey.ed25519(name=ALICE.name, public=BOB.verifier_key.public)
    object.__setattr__(twin, "key_id", ALICE.verifier_key.key_id)  # as if 32 bits had collided
    with pytest.raises(FormatError, match="verifier keys"):
        open_note(note, [ALICE.verifier_key, twin])


def test_a_text_may_hold_empty_lines_and_lines_that_look_like_signatures() -> None:
    for text in ["\n", "\n\n", "a\n\n\n", "— example.com/alice AAAA\n", "a\n\n— b c\n"]:
        assert opened(sign_note(text, [ALICE]), ALICE).text == text


@pytest.mark.parametrize("text", ["", "no newline", "tab\t\n", "nul\x00\n", "carriage\r\n", "\x1f\n", "lone \ud800\n"])
def test_a_text_that_no_note_can_hold_is_not_signed(text: str) -> None:
    with pytest.raises(FormatError, match="note"):
        sign_note(text, [ALICE])


def test_a_note_is_not_signed_by_nobody() -> None:
    with pytest.raises(FormatError, match="signatures"):
        sign_note(TEXT, [])


def test_the_private_key_is_in_no_text_form_of_a_signer() -> None:
    seed = bytes(range(65, 97))
    signer = Ed25519Signer.from_seed(name="example.com/alice", seed=seed)
    for shown in [repr(signer), str(signer), f"{signer!r}", repr([signer])]:
        assert "example.com/alice" in shown
        assert "private" not in shown.lower()
        for form in [seed.hex(), repr(seed)[2:-1], base64.b64encode(seed).decode(), seed.decode()]:
            assert form not in shown


def test_a_seed_of_another_length_is_refused_without_being_shown() -> None:
    with pytest.raises(FormatError) as caught:
        Ed25519Signer.from_seed(name="example.com/alice", seed=b"secret" * 6)
    assert "secret" not in str(caught.value)
    assert "36 bytes" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", "a b", "a+b", "a\nb", "a\x00", "a\u00a0b", "a\u2028", "a\u3000", "\x85", "\ud800"]
)
def test_a_name_that_no_key_may_have_is_a_format_error(name: str) -> None:
    with pytest.raises(FormatError, match="key name"):
        VerifierKey.ed25519(name=name, public=bytes(32))
    with pytest.raises(FormatError, match="key name"):
        Signature(name=name, key_id=bytes(4), signature=b"x")
    with pytest.raises(FormatError):
        VerifierKey.parse(f"{name}+00000000+{format_base64(bytes([1]) + bytes(32))}")


@pytest.mark.parametrize(
    "vkey",
    [
        "",
        "+",
        "++",
        "name",
        "name+c74f20a3",
        "name+c74f20a3+",
        NEUMANN.replace("c74f20a3", "c74f20a4"),
        NEUMANN.replace("c74f20a3", "C74F20A3"),
        NEUMANN.replace("c74f20a3", "c74f20a"),
        NEUMANN.replace("c74f20a3", "0c74f20a3"),
        NEUMANN.replace("PeterNeumann", "PeterNewman"),
        NEUMANN.replace("+AR", "+BR"),  # another algorithm
        NEUMANN[:-4],
        NEUMANN + "AAAA",
        NEUMANN + "\n",
        " " + NEUMANN,
        NEUMANN[:-1] + "X",
        "\ud800" + NEUMANN,
        NEUMANN + "\ud800",
        "name+" + "\N{ARABIC-INDIC DIGIT ZERO}" * 8 + "+AAAA",
    ],
)
def test_what_is_no_verifier_key_is_a_format_error(vkey: str) -> None:
    with pytest.raises(FormatError):
        VerifierKey.parse(vkey)


def test_a_private_key_handed_over_as_a_verifier_key_is_not_shown() -> None:
    with pytest.raises(FormatError) as caught:
        VerifierKey.parse("PRIVATE+KEY+example.com/alice+c74f20a3+c2VjcmV0")
    assert "PRIVATE+KEY" in str(caught.value)
    assert "c2VjcmV0" not in str(caught.value)


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=40) | st.text("+A0f=", max_size=60).map("n+00000000+".__add__))
def test_arbitrary_text_is_a_verifier_key_or_a_format_error(text: str) -> None:
    try:
        key = VerifierKey.parse(text)
    except FormatError:
        return
    assert key.format() == text


@settings(max_examples=20, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=70))
@example(bytes(32), bytes(64))
@example(
    b"\x01" + bytes(31), b"\x01" + bytes(63)
)  # a key of small order, for which this signature satisfies the equation
@example(b"\xff" * 32, bytes(64))
def test_arbitrary_key_and_signature_bytes_raise_only_broken_errors(public: bytes, signature: bytes) -> None:
    try:
        VerifierKey.ed25519(name="any", public=public).check(b"text\n", signature)
    except BrokenError as error:
        assert error.fault is Fault.SIGNATURE  # noqa: PT017  small orders may verify, and that is no concern of a trusted key


@settings(max_examples=40, deadline=None)
@given(TEXTS.map(lambda text: text + "\n"), st.lists(SIGNATURES, min_size=1, max_size=4))
def test_a_note_is_read_as_it_was_written(text: str, signatures: list[Signature]) -> None:
    assert parse_note(format_note(text, signatures)) == (text, tuple(signatures))


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from(["\n", "— ", "a", " ", "AAAAAAA=", "AAAAAAB=", "=", "\r"]), max_size=20).map(
        lambda parts: "".join(parts).encode()
    )
)
@example("\n\n— a AAAAAAA=\n".encode())
def test_arbitrary_bytes_are_a_note_or_one_of_our_errors(data: bytes) -> None:
    try:
        assert format_note(*parse_note(data)) == data
        opened(data, ALICE)
    except (FormatError, BrokenError):
        pass


@pytest.mark.parametrize(
    "line",
    [
        "— name\n",
        "— name \n",
        "— name AAAA\n",  # a key id is four bytes, and something must follow
        "— name AAAAAA==\n",
        "— name AAAAAAA\n",
        "— name AAAAAAB=\n",  # spare bits set
        "— name AAAA AAA=\n",
        "—name AAAAAAA=\n",
        "- name AAAAAAA=\n",
        " — name AAAAAAA=\n",
        "—  AAAAAAA=\n",
        "— na+me AAAAAAA=\n",
        "— name AAAAAAA= \n",
        "— name AAAAAAA=\r\n",
        "— name AAAAAAA=",
        "— name ｟AAAAAA=\n",
        "",
    ],
)
def test_a_signature_line_of_another_form_is_a_format_error(line: str) -> None:
    assert parse_note("text\n\n— name AAAAAAA=\n".encode())
    with pytest.raises(FormatError):
        parse_note(f"text\n\n{line}".encode())


def test_sixteen_signatures_and_more_are_read_and_too_many_are_refused() -> None:
    line = "— name AAAAAAA=\n"
    for count in [16, SIGNATURES_MAX]:
        assert len(parse_note(f"text\n\n{line * count}".encode())[1]) == count
    for count in [SIGNATURES_MAX + 1, 10_000]:
        with pytest.raises(FormatError):
            parse_note(f"text\n\n{line * count}".encode())


def test_a_note_over_the_size_limit_is_refused_both_ways() -> None:
    fits = "x" * (NOTE_SIZE_BYTES_MAX - 200) + "\n"
    assert opened(sign_note(fits, [ALICE]), ALICE).text == fits
    with pytest.raises(FormatError, match="at most"):
        sign_note("x" * NOTE_SIZE_BYTES_MAX + "\n", [ALICE])
    with pytest.raises(FormatError, match="at most"):
        parse_note(sign_note(fits, [ALICE]).replace(b"x", b"xx", 300))


@pytest.mark.parametrize(
    "text", ["A", "AA", "AA=", "AB==", "AA==\n", "AA ==", "AA==AA==", "-_==", "é", "\ud800", "===="]
)
def test_another_spelling_of_base64_is_a_format_error(text: str) -> None:
    assert parse_base64("AA==", what="test") == b"\x00"
    with pytest.raises(FormatError, match="test"):
        parse_base64(text, what="test")
