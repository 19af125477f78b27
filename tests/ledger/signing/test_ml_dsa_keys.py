# SPDX-License-Identifier: Apache-2.0
"""ML-DSA-44 keys of a signer in its directory: added and retired on demand, and what a crash leaves of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from ledger.errors import BrokenError, BusyKeyDirectoryError, FormatError, KeyDirectoryError, RotationError
from ledger.files.atomic import replace_file
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.cosignature import CheckpointCosigner, MlDsaKey, ml_dsa_key_id, ml_dsa_verifier_key
from ledger.format.note import VerifierKey, format_note, open_note, parse_note, sign_note
from ledger.format.signature import ML_DSA_44_COSIGNATURE, cosigned_at
from ledger.signing.key_directory import KeyDirectory, create_key_directory, open_key_directory
from ledger.signing.key_ring import ML_DSA_KEYS_MAX, KeyLife, KeyRing, KeySource, MlDsaRecord, open_ring, sign_ring
from ledger.signing.keys import FileKey, format_seed
from ledger.signing.rotation import add_ml_dsa_key, retire_ml_dsa_key

ORIGIN = "logs.example/one"
TEXT = format_checkpoint(Checkpoint(origin=ORIGIN, size=7, root=bytes(range(32))))
TIME_S = 1_700_000_000
SEEDS = [bytes([number]) * 32 for number in range(6)]
ACTIVE = FileKey.from_seed(SEEDS[0])
KEYS = [MlDsaKey.from_seed(seed) for seed in SEEDS]
ALONE = KeyRing.of_first(ACTIVE.public_key, KeySource.FILE)


def ring(*lives: KeyLife) -> KeyRing:
    records = tuple(MlDsaRecord(public=KEYS[at].public, life=life) for at, life in enumerate(lives))
    return replace(ALONE, ml_dsa=records)


def drawn(number: int) -> Callable[[int], bytes]:
    """Return a source of randomness that gives seed `number`."""
    return lambda _: SEEDS[number]


@pytest.fixture
def keys(tmp_path: Path) -> KeyDirectory:
    return create_key_directory(tmp_path / "keys", random=drawn(0))


def files(keys: KeyDirectory) -> list[str]:
    return sorted(file.name for file in keys.path.glob("ml-dsa*"))


def name_of(number: int) -> str:
    return f"ml-dsa-44-key-{ml_dsa_key_id(KEYS[number].public)}"


def signing(keys: KeyDirectory) -> list[bytes]:
    """Return the ML-DSA-44 keys that sign, as a process has them that has just started."""
    return [key.public for key in open_key_directory(keys.path).ml_dsa_verifier_keys(ORIGIN)]


# Signatures


def test_a_checkpoint_is_signed_by_both_kinds_of_keys_under_the_name_of_its_log() -> None:
    cosigner = CheckpointCosigner(name=ORIGIN, key=KEYS[1], time_s=TIME_S)
    own = VerifierKey.ed25519(name=ORIGIN, public=ACTIVE.public_key)
    key = ml_dsa_verifier_key(ORIGIN, KEYS[1].public)
    assert (key.name, key.algorithm, len(key.public)) == (ORIGIN, ML_DSA_44_COSIGNATURE, 1312)
    assert cosigner.verifier_key == key
    assert VerifierKey.parse(key.format()) == key
    note = sign_note(TEXT, [cosigner])
    opened = open_note(note, [key])
    assert opened.verified == (key,)
    (line,) = open_note(sign_note(TEXT, [cosigner, _Signer()]), [own]).unverified
    assert (line.name, len(line.signature)) == (ORIGIN, 8 + 2420)
    assert cosigned_at(line.signature) == TIME_S
    with pytest.raises(BrokenError):
        open_note(note, [ml_dsa_verifier_key(ORIGIN, KEYS[2].public)])
    with pytest.raises(FormatError, match="a time from 1"):
        sign_note(TEXT, [replace(cosigner, time_s=0)])


class _Signer:
    name = ORIGIN
    verifier_key = VerifierKey.ed25519(name=ORIGIN, public=ACTIVE.public_key)

    def sign(self, text: bytes) -> bytes:
        return ACTIVE.sign(text)


def test_the_seed_is_in_no_text_form_of_a_key() -> None:
    key = MlDsaKey.from_seed(b"w" * 32)
    for one in (key, CheckpointCosigner(name=ORIGIN, key=key, time_s=1)):
        assert "w" * 32 not in repr(one)
        assert (b"w" * 32).hex() not in repr(one)
    with pytest.raises(FormatError, match="32 bytes"):
        MlDsaKey.from_seed(b"w" * 31)


# Rings


def test_none_one_or_two_keys_sign_behind_those_that_are_retired() -> None:
    ends = {(), (KeyLife.ACTIVE,), (KeyLife.OVERLAPPING, KeyLife.ACTIVE)}
    for count in range(4):
        for lives in product(KeyLife, repeat=count):
            start = next((at for at, life in enumerate(lives) if life is not KeyLife.RETIRED), count)
            if lives[start:] in ends:
                assert len(ring(*lives).ml_dsa_signing) == count - start
            else:
                with pytest.raises(FormatError):
                    ring(*lives)


def test_a_key_is_added_beside_the_one_before_and_the_older_one_is_retired_first() -> None:
    one = ALONE.with_ml_dsa(KEYS[1].public)
    two = one.with_ml_dsa(KEYS[2].public)
    assert [record.life for record in two.ml_dsa] == [KeyLife.OVERLAPPING, KeyLife.ACTIVE]
    assert [record.public for record in two.ml_dsa_signing] == [KEYS[2].public, KEYS[1].public]
    with pytest.raises(RotationError, match="retire one first"):
        two.with_ml_dsa(KEYS[3].public)
    left, retired = two.without_ml_dsa()
    assert (retired.public, retired.life) == (KEYS[1].public, KeyLife.RETIRED)
    with pytest.raises(RotationError, match="never used twice"):
        left.with_ml_dsa(KEYS[1].public)
    none, last = left.without_ml_dsa()
    assert (last.public, none.ml_dsa_signing) == (KEYS[2].public, ())
    with pytest.raises(RotationError, match="none to retire"):
        none.without_ml_dsa()


def test_a_full_ring_is_still_a_note_and_takes_no_more() -> None:
    retired = (MlDsaRecord(public=at.to_bytes(1312, "big"), life=KeyLife.RETIRED) for at in range(ML_DSA_KEYS_MAX - 1))
    full = replace(ALONE, ml_dsa=(*retired, *ring(KeyLife.ACTIVE).ml_dsa))
    assert open_ring(sign_ring(full, ACTIVE)) == full
    with pytest.raises(RotationError, match="limit"):
        full.with_ml_dsa(KEYS[1].public)
    with pytest.raises(FormatError, match="all different"):
        replace(full, ml_dsa=(full.ml_dsa[-2], *full.ml_dsa))


def test_a_ring_without_such_keys_has_the_form_that_older_software_reads() -> None:
    assert sign_ring(ALONE, ACTIVE).startswith(b"lakeproof signer keys 1\n[")
    assert sign_ring(ring(KeyLife.ACTIVE), ACTIVE).startswith(b"lakeproof signer keys 2\n{")
    for lives in ((KeyLife.ACTIVE,), (KeyLife.OVERLAPPING, KeyLife.ACTIVE), (KeyLife.RETIRED,)):
        assert open_ring(sign_ring(ring(*lives), ACTIVE)) == ring(*lives)


def test_a_ring_of_another_form_is_refused_though_it_is_signed() -> None:
    signer = _RingSigner()
    text = sign_ring(ring(KeyLife.ACTIVE), ACTIVE).decode().partition("\n\n")[0] + "\n"
    assert open_ring(sign_note(text, [signer])) == ring(KeyLife.ACTIVE)
    (public,) = (record.public for record in ring(KeyLife.ACTIVE).ml_dsa)
    for old, new in [
        ("keys 2", "keys 1"),
        ("keys 2", "keys 3"),
        ('"ml_dsa_44"', '"ml_dsa_65"'),
        ('"active","public":"', '"joining","public":"'),
        (text[text.index('"ml_dsa_44":') :], '"ml_dsa_44":[]}\n'),
        (text[text.index('"ml_dsa_44":') :], '"ml_dsa_44":{}}\n'),
        (sign_note_text(public), sign_note_text(public[:-1])),
    ]:
        changed = text.replace(old, new)
        assert changed != text
        with pytest.raises(FormatError):
            open_ring(sign_note(changed, [signer]))


def sign_note_text(public: bytes) -> str:
    """Return how a ring writes a public key."""
    return format_seed(public).decode().removesuffix("\n")


class _RingSigner(_Signer):
    name = "lakeproof-signer-keys"
    verifier_key = VerifierKey.ed25519(name=name, public=ACTIVE.public_key)


def test_a_changed_byte_of_a_ring_is_found() -> None:
    note = sign_ring(ring(KeyLife.OVERLAPPING, KeyLife.ACTIVE), ACTIVE)
    for at in range(0, len(note), 7):
        with pytest.raises((FormatError, BrokenError)):
            open_ring(note[:at] + bytes([note[at] ^ 1]) + note[at + 1 :])


# Directories


def test_a_new_directory_has_no_such_key_and_an_added_one_signs_from_then_on(keys: KeyDirectory) -> None:
    assert (files(keys), signing(keys)) == ([], [])
    assert len(keys.checkpoint_signers(ORIGIN, time_s=TIME_S)) == 1
    added = add_ml_dsa_key(keys, random=drawn(1))
    assert added == MlDsaRecord(public=KEYS[1].public, life=KeyLife.ACTIVE)
    assert (files(keys), signing(keys)) == ([name_of(1)], [KEYS[1].public])
    assert stat.S_IMODE((keys.path / name_of(1)).stat().st_mode) == 0o600
    opened = open_key_directory(keys.path)
    note = sign_note(TEXT, opened.checkpoint_signers(ORIGIN, time_s=TIME_S))
    assert open_note(note, [opened.verifier_key(ORIGIN)]).verified
    assert open_note(note, opened.ml_dsa_verifier_keys(ORIGIN)).verified
    assert [key.public for key in opened.verifier_keys(ORIGIN)] == [ACTIVE.public_key]
    assert opened.open(note, ORIGIN).size == 7


def test_what_only_an_ml_dsa_44_key_has_signed_is_not_a_checkpoint_of_this_signer(keys: KeyDirectory) -> None:
    add_ml_dsa_key(keys, random=drawn(1))
    note = sign_note(TEXT, keys.checkpoint_signers(ORIGIN, time_s=TIME_S)[1:])
    with pytest.raises(BrokenError):
        keys.open(note, ORIGIN)


def test_a_bad_line_of_a_key_that_was_ever_in_the_ring_is_found(keys: KeyDirectory) -> None:
    add_ml_dsa_key(keys, random=drawn(1))
    note = sign_note(TEXT, keys.checkpoint_signers(ORIGIN, time_s=TIME_S))
    text, (own, line) = parse_note(note)
    bad = replace(line, signature=line.signature[:-1] + bytes([line.signature[-1] ^ 1]))
    changed = format_note(text, [own, bad])
    for _ in range(2):
        assert keys.open(note, ORIGIN).size == 7
        with pytest.raises(BrokenError):
            keys.open(changed, ORIGIN)
        if keys.keys.ml_dsa:
            retire_ml_dsa_key(keys)


def test_a_key_is_replaced_without_a_gap_and_its_private_half_destroyed(keys: KeyDirectory) -> None:
    add_ml_dsa_key(keys, random=drawn(1))
    add_ml_dsa_key(keys, random=drawn(2))
    assert signing(keys) == [KEYS[2].public, KEYS[1].public]
    held = os.open(keys.path / name_of(1), os.O_RDONLY)
    assert retire_ml_dsa_key(keys).public == KEYS[1].public
    assert not os.read(held, 100).strip(b"\0")
    os.close(held)
    assert (files(keys), signing(keys)) == ([name_of(2)], [KEYS[2].public])
    assert retire_ml_dsa_key(keys).public == KEYS[2].public
    assert (files(keys), signing(keys)) == ([], [])
    with pytest.raises(RotationError, match="none to retire"):
        retire_ml_dsa_key(keys)


def test_a_directory_that_another_process_holds_is_not_changed(keys: KeyDirectory) -> None:
    with open_key_directory(keys.path).locked(), pytest.MonkeyPatch.context() as patched:
        patched.setattr("ledger.signing.rotation.LOCK_TIMEOUT_S", 0.0)
        for change in (add_ml_dsa_key, retire_ml_dsa_key):
            with pytest.raises(BusyKeyDirectoryError):
                change(keys)
    assert files(keys) == []


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda path: (path / name_of(1)).unlink(), "is damaged .it is not there.: restore the whole"),
        (lambda path: (path / name_of(1)).chmod(0o640), "run chmod 600"),
        (lambda path: replace_file(path / name_of(1), format_seed(SEEDS[2])), "expected the key"),
        (lambda path: replace_file(path / name_of(1), b"AAAA"), "expected 32 bytes in base64"),
        (lambda path: (path / "keys").unlink(), r"keys is not there, but ml-dsa-44-key-\w+ is: restore the whole"),
    ],
)
def test_a_directory_that_lacks_something_is_refused(
    keys: KeyDirectory, damage: Callable[[Path], object], found: str
) -> None:
    add_ml_dsa_key(keys, random=drawn(1))
    damage(keys.path)
    with pytest.raises(KeyDirectoryError, match=found) as caught:
        open_key_directory(keys.path)
    assert "AAAA" not in str(caught.value)


def test_a_key_that_somebody_slips_in_does_not_sign(keys: KeyDirectory) -> None:
    add_ml_dsa_key(keys, random=drawn(1))
    replace_file(keys.path / name_of(2), format_seed(SEEDS[2]))
    assert signing(keys) == [KEYS[1].public]
    slipped = sign_ring(replace(ALONE, ml_dsa=ring(KeyLife.OVERLAPPING, KeyLife.ACTIVE).ml_dsa), ACTIVE)
    replace_file(keys.path / "keys", slipped.replace(b"overlapping", b"retired"))
    with pytest.raises(KeyDirectoryError, match="keys is damaged"):
        open_key_directory(keys.path)


# What a crash leaves


class Gone(BaseException):
    """The process is gone: nothing catches this."""


@contextmanager
def crashing(name: str, *, at: int) -> Iterator[None]:
    """Let the process go before it renames a file over `name`, or removes it, for the `at`-th time."""
    counted = iter(range(1, 100))
    replaced, unlinked = Path.replace, Path.unlink

    def gone(path: Path) -> None:
        if path.name.startswith(name) and next(counted) == at:
            raise Gone

    def replace(self: Path, target: Path) -> Path:
        gone(target)
        return replaced(self, target)

    def unlink(self: Path) -> None:
        gone(self)
        unlinked(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "replace", replace)
        patched.setattr(Path, "unlink", unlink)
        yield


@pytest.mark.parametrize(("name", "at"), [("keys", 1), ("ml-dsa-44-key", 1), ("keys", 2)])
def test_a_key_that_was_not_quite_added_does_not_sign_and_the_next_change_goes_on(
    keys: KeyDirectory, name: str, at: int
) -> None:
    with crashing(name, at=at), pytest.raises(Gone):
        add_ml_dsa_key(keys, random=drawn(1))
    after = open_key_directory(keys.path)
    assert signing(after) == []
    add_ml_dsa_key(after, random=drawn(2))
    assert (files(after), signing(after)) == ([name_of(2)], [KEYS[2].public])


def test_a_retirement_that_stopped_is_taken_up_and_the_other_key_signs_on(keys: KeyDirectory) -> None:
    add_ml_dsa_key(keys, random=drawn(1))
    add_ml_dsa_key(keys, random=drawn(2))
    with crashing("ml-dsa-44-key", at=1), pytest.raises(Gone):
        retire_ml_dsa_key(keys)
    after = open_key_directory(keys.path)
    assert (files(after), signing(after)) == (sorted([name_of(1), name_of(2)]), [KEYS[2].public])
    assert retire_ml_dsa_key(after).public == KEYS[1].public
    assert (files(after), signing(after)) == ([name_of(2)], [KEYS[2].public])
    assert retire_ml_dsa_key(after).public == KEYS[2].public
