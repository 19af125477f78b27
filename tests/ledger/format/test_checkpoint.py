# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: the one spelling of origin, size and root, and whose signature counts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.checkpoint import Checkpoint, format_checkpoint, parse_checkpoint
from ledger.format.encoding import SIZE_MAX, parse_decimal
from ledger.format.merkle import EMPTY_ROOT
from ledger.format.note import Ed25519Signer, open_checkpoint, sign_note

ORIGIN = "example.com/log"
LOG = Ed25519Signer.from_seed(name=ORIGIN, seed=b"a" * 32)
OTHER_LOG = Ed25519Signer.from_seed(name="example.com/other", seed=b"a" * 32)
WITNESS = Ed25519Signer.from_seed(name="witness.example", seed=b"w" * 32)
ROOT = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I="
LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1, max_size=12)
CHECKPOINTS = st.builds(
    Checkpoint,
    origin=LINES,
    size=st.integers(min_value=0, max_value=SIZE_MAX),
    root=st.binary(min_size=32, max_size=32),
    extensions=st.lists(LINES, max_size=3).map(tuple),
)


def signed(text: str, *signers: Ed25519Signer) -> bytes:
    return sign_note(text, signers)


def test_the_text_of_the_specifications_example_is_read() -> None:
    # tlog-checkpoint, the example at its head.
    text = f"example.com/behind-the-sofa\n20852163\n{ROOT}\n"
    checkpoint = parse_checkpoint(text)
    assert (checkpoint.origin, checkpoint.size) == ("example.com/behind-the-sofa", 20_852_163)
    assert checkpoint.root.hex() == "0ac5186a91863e8e1d90c808014aa89bf5da8e3ee1d9f07630f0378f68f1ab62"
    assert checkpoint.extensions == ()
    assert format_checkpoint(checkpoint) == text


@settings(max_examples=40, deadline=None)
@given(CHECKPOINTS)
def test_a_checkpoint_is_read_as_it_was_written(checkpoint: Checkpoint) -> None:
    assert parse_checkpoint(format_checkpoint(checkpoint)) == checkpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "\n\n\n",
        "o\n1\n",
        f"o\n1\n{ROOT}",
        f"\n1\n{ROOT}\n",
        f"o\n\n{ROOT}\n",
        "o\n1\n\n",
        f"o\n01\n{ROOT}\n",
        f"o\n+1\n{ROOT}\n",
        f"o\n-1\n{ROOT}\n",
        f"o\n1_0\n{ROOT}\n",
        f"o\n 1\n{ROOT}\n",
        f"o\n1.0\n{ROOT}\n",
        f"o\n\N{ARABIC-INDIC DIGIT THREE}\n{ROOT}\n",
        f"o\n\N{SUPERSCRIPT TWO}\n{ROOT}\n",
        f"o\n{SIZE_MAX + 1}\n{ROOT}\n",
        f"o\n{'9' * 5000}\n{ROOT}\n",
        f"o\n1\n{ROOT[:-1]}\n",
        f"o\n1\n{ROOT[:-4]}\n",
        f"o\n1\nAAAA{ROOT}\n",
        f"o\n1\n{ROOT} \n",
        f"o\n1\n{ROOT[:-2]}J=\n",
        f"o\n1\n{ROOT}\n\n",
        f"o\n1\n{ROOT}\n\nextension\n",
        f"o\r\n1\r\n{ROOT}\r\n",
        f"o\n1\n\ud800{ROOT}\n",
    ],
)
def test_another_spelling_of_a_checkpoint_is_a_format_error(text: str) -> None:
    assert parse_checkpoint(f"o\n1\n{ROOT}\n").size == 1
    with pytest.raises(FormatError):
        parse_checkpoint(text)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=30) | st.lists(st.sampled_from(["\n", "o", "1", "0", ROOT, " "]), max_size=9).map("".join))
def test_arbitrary_text_is_a_checkpoint_or_a_format_error(text: str) -> None:
    try:
        checkpoint = parse_checkpoint(text)
    except FormatError:
        return
    assert format_checkpoint(checkpoint) == text


@pytest.mark.parametrize(
    "fields",
    [
        {"origin": ""},
        {"origin": "a\nb"},
        {"size": -1},
        {"size": SIZE_MAX + 1},
        {"root": b""},
        {"root": bytes(31)},
        {"extensions": ("",)},
        {"extensions": ("a\nb",)},
    ],
)
def test_a_checkpoint_that_could_not_be_read_again_cannot_be_made(fields: dict[str, object]) -> None:
    with pytest.raises(FormatError, match="checkpoint"):
        Checkpoint(**{"origin": "o", "size": 1, "root": EMPTY_ROOT, **fields})  # type: ignore[arg-type]  # fields of several types


def test_a_checkpoint_signed_by_its_log_opens() -> None:
    checkpoint = Checkpoint(origin=ORIGIN, size=0, root=EMPTY_ROOT)
    note = signed(format_checkpoint(checkpoint), LOG, WITNESS)
    assert open_checkpoint(note, [LOG.verifier_key]) == checkpoint
    assert open_checkpoint(note, [WITNESS.verifier_key, LOG.verifier_key], origin=ORIGIN) == checkpoint


def test_a_checkpoint_of_another_log_than_asked_for_is_refused() -> None:
    note = signed(f"{ORIGIN}\n1\n{ROOT}\n", LOG)
    with pytest.raises(BrokenError) as caught:
        open_checkpoint(note, [LOG.verifier_key, OTHER_LOG.verifier_key], origin="example.com/other")
    assert caught.value.fault is Fault.CHECKPOINT


@pytest.mark.parametrize("signers", [[WITNESS], [OTHER_LOG], [WITNESS, OTHER_LOG]])
def test_a_checkpoint_that_its_own_log_did_not_sign_is_refused(signers: list[Ed25519Signer]) -> None:
    # The other log has the same private key: only the name under which it signed tells them apart.
    note = signed(f"{ORIGIN}\n1\n{ROOT}\n", *signers)
    for origin in [None, ORIGIN]:
        with pytest.raises(BrokenError) as caught:
            open_checkpoint(note, [s.verifier_key for s in (LOG, OTHER_LOG, WITNESS)], origin=origin)
        assert caught.value.fault is Fault.SIGNATURE


def test_a_bad_signature_of_a_known_witness_refuses_the_checkpoint() -> None:
    text = f"{ORIGIN}\n1\n{ROOT}\n"
    stranger = signed("another text\n", WITNESS).decode().splitlines(keepends=True)[-1]
    note = signed(text, LOG) + stranger.encode()
    assert open_checkpoint(note, [LOG.verifier_key]).size == 1
    with pytest.raises(BrokenError) as caught:
        open_checkpoint(note, [LOG.verifier_key, WITNESS.verifier_key])
    assert caught.value.fault is Fault.SIGNATURE


def test_a_signed_text_that_is_no_checkpoint_is_a_format_error() -> None:
    with pytest.raises(FormatError, match="checkpoint"):
        open_checkpoint(signed(f"{ORIGIN}\nhello\n", LOG), [LOG.verifier_key])


def test_no_keys_open_nothing() -> None:
    with pytest.raises(BrokenError):
        open_checkpoint(signed(f"{ORIGIN}\n1\n{ROOT}\n", LOG), [])


@given(st.integers(min_value=0, max_value=SIZE_MAX))
@settings(max_examples=20, deadline=None)
def test_a_decimal_is_read_as_python_writes_it(number: int) -> None:
    assert parse_decimal(str(number), what="test") == number


@pytest.mark.parametrize(
    "text", ["", "00", "01", "-0", "+1", "1_0", " 1", "1\n", str(SIZE_MAX + 1), "1" * 5000, "\ud800"]
)
def test_another_spelling_of_a_decimal_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError, match="test"):
        parse_decimal(text, what="test")
