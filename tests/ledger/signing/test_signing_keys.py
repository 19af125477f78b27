# SPDX-License-Identifier: Apache-2.0
"""The keys in a key directory: what is private, what is damaged, and what a ring of keys can be."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from ledger.errors import BrokenError, BusyKeyDirectoryError, FormatError, KeyDirectoryError, RotationError
from ledger.files.atomic import create_file, replace_file
from ledger.files.private_files import destroy
from ledger.format import canonical
from ledger.format.events import SignedTree
from ledger.format.key_history import state_retirement
from ledger.signing.key_directory import KeyDirectory, create_key_directory, holds_keys, open_key_directory
from ledger.signing.key_ring import KEYS_MAX, KeyLife, KeyRecord, KeyRing, KeySource, open_ring, sign_ring
from ledger.signing.keys import FileKey, generate_key_file, key_id, parse_key_id, read_key_file
from ledger.signing.stored_keys import destroy_strays, write_later_key, write_retirement

SEEDS = [bytes([number]) * 32 for number in range(4)]
KEYS = [FileKey.from_seed(seed) for seed in SEEDS]


def ring(*lives: KeyLife) -> KeyRing:
    records = (
        KeyRecord(public=KEYS[at].public_key, life=life, source=KeySource.FILE, rotated_at=at or None)
        for at, life in enumerate(lives)
    )
    return KeyRing(records=tuple(records))


RETIRED = sign_ring(ring(KeyLife.RETIRED, KeyLife.ACTIVE), KEYS[1])


@pytest.fixture
def rotated(tmp_path: Path) -> Path:
    """A directory in which a second key signs beside the first."""
    keys = create_key_directory(tmp_path / "keys", random=lambda _: SEEDS[0])
    with keys.locked():
        keys.replace_ring(ring(KeyLife.ACTIVE))
        write_later_key(keys.path, SEEDS[1], KEYS[1].public_key)
        keys.replace_ring(ring(KeyLife.ACTIVE, KeyLife.JOINING))
        keys.replace_ring(ring(KeyLife.OVERLAPPING, KeyLife.ACTIVE))
    return keys.path


def later(path: Path) -> Path:
    (file,) = path.glob("signing-key-*")
    return file


# Ids


def test_the_id_is_the_one_that_openssh_prints() -> None:
    # ssh-keygen -lf on the public key of RFC 8032, section 7.1, TEST 1
    public = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    assert key_id(public) == "SHA256:bbXpuKG6zhzdmnxq256TlqzFBzRl2f6OOg722cYNbU8"


@pytest.mark.parametrize("text", ["", "SHA256:", "MD5:" + "a" * 43, "SHA256:" + "a" * 42, "SHA256:" + "a" * 43 + "="])
def test_another_spelling_is_no_id(text: str) -> None:
    assert parse_key_id(KEYS[0].key_id) == KEYS[0].key_id
    with pytest.raises(FormatError, match="key id"):
        parse_key_id(text)


# Rings


def test_a_ring_is_one_active_key_and_at_most_one_on_its_way() -> None:
    ends = {
        (KeyLife.ACTIVE,),
        (KeyLife.ACTIVE, KeyLife.JOINING),
        (KeyLife.OVERLAPPING, KeyLife.ACTIVE),
        (KeyLife.RETIRING, KeyLife.ACTIVE),
    }
    for count in range(4):
        for lives in product(KeyLife, repeat=count):
            start = next((at for at, life in enumerate(lives) if life is not KeyLife.RETIRED), count)
            if lives[start:] in ends:
                assert ring(*lives).active.life is KeyLife.ACTIVE
            else:
                with pytest.raises(FormatError):
                    ring(*lives)


def test_a_key_goes_through_its_life_in_order() -> None:
    joining = ring(KeyLife.ACTIVE).joined(KeyRecord(public=b"1" * 32, life=KeyLife.ACTIVE, source=KeySource.FILE))
    assert [record.public for record in joining.signing] == [KEYS[0].public_key]
    overlapping = joining.activated(rotated_at=5)
    assert [record.public for record in overlapping.signing] == [b"1" * 32, KEYS[0].public_key]
    assert overlapping.active.rotated_at == 5
    alone = overlapping.silenced()
    assert [record.public for record in alone.signing] == [b"1" * 32]
    assert [record.life for record in alone.retired().records] == [KeyLife.RETIRED, KeyLife.ACTIVE]
    for other in (joining, overlapping, alone):
        with pytest.raises(RotationError):
            other.joined(KeyRecord(public=b"2" * 32, life=KeyLife.ACTIVE, source=KeySource.FILE))
    with pytest.raises(RotationError, match="never used twice"):
        alone.retired().joined(KeyRecord(public=KEYS[0].public_key, life=KeyLife.ACTIVE, source=KeySource.FILE))


def test_a_ring_with_as_many_keys_as_there_may_be_is_still_a_note() -> None:
    numbers = range(KEYS_MAX - 1)
    retired = [
        KeyRecord(public=number.to_bytes(32, "big"), life=KeyLife.RETIRED, source=KeySource.AGENT, rotated_at=2**52)
        for number in numbers
    ]
    full = KeyRing(records=(*retired, *ring(KeyLife.ACTIVE).records))
    assert open_ring(sign_ring(full, KEYS[0])) == full
    with pytest.raises(RotationError, match="limit"):
        full.joined(KeyRecord(public=b"1" * 32, life=KeyLife.ACTIVE, source=KeySource.FILE))


def test_any_changed_byte_of_a_ring_is_found() -> None:
    note = sign_ring(ring(KeyLife.OVERLAPPING, KeyLife.ACTIVE), KEYS[1])
    assert open_ring(note) == ring(KeyLife.OVERLAPPING, KeyLife.ACTIVE)
    for at in range(len(note)):
        with pytest.raises((FormatError, BrokenError)):
            open_ring(note[:at] + bytes([note[at] ^ 1]) + note[at + 1 :])
    with pytest.raises(BrokenError):
        open_ring(sign_ring(ring(KeyLife.OVERLAPPING, KeyLife.ACTIVE), KEYS[0]))  # by a key that is not the active one


# Directories


def test_a_directory_comes_back_with_both_keys(rotated: Path) -> None:
    keys = open_key_directory(rotated)
    assert [signer.key.key_id for signer in keys.signers("a/b")] == [KEYS[1].key_id, KEYS[0].key_id]
    assert [key.public for key in keys.verifier_keys("a/b")] == [KEYS[1].public_key, KEYS[0].public_key]
    assert keys.first_verifier_key("a/b").public == KEYS[0].public_key
    assert stat.S_IMODE(later(rotated).stat().st_mode) == stat.S_IMODE((rotated / "keys").stat().st_mode) == 0o600
    assert holds_keys(rotated)
    assert not holds_keys(rotated / "elsewhere")


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda path: (path / "keys").unlink(), r"keys is not there, but signing-key-\w+ is: restore the whole"),
        (lambda path: later(path).unlink(), "is damaged .it is not there.: restore the whole"),
        (lambda path: (path / "signing-key").unlink(), "is damaged .it is not there.: restore the whole"),
        (lambda path: replace_file(later(path), (path / "signing-key").read_bytes()), "expected the key SHA256"),
        (lambda path: replace_file(path / "keys", b"?"), "keys is damaged"),
        (lambda path: later(path).write_bytes(b"AAAA"), "is damaged: expected 32 bytes in base64"),
        (lambda path: later(path).chmod(0o640), "run chmod 600"),
        (lambda path: (path / "keys").chmod(0o604), "run chmod 600"),
        (lambda path: path.chmod(0o750), "run chmod 700"),
        (
            lambda path: replace_file(path / "keys", sign_ring(ring(KeyLife.RETIRED, KeyLife.ACTIVE), KEYS[1])),
            "retire",
        ),
    ],
)
def test_a_directory_that_lacks_something_is_refused(
    rotated: Path, damage: Callable[[Path], object], found: str
) -> None:
    damage(rotated)
    with pytest.raises(KeyDirectoryError, match=found) as caught:
        open_key_directory(rotated)
    assert "AAAA" not in str(caught.value)


def test_a_key_that_somebody_slips_in_is_refused(rotated: Path) -> None:
    slipped = ring(KeyLife.RETIRED, KeyLife.OVERLAPPING, KeyLife.ACTIVE)
    replace_file(rotated / "keys", sign_ring(slipped, KEYS[2]))  # signed by the key itself, whose file is not there
    with pytest.raises(KeyDirectoryError):
        open_key_directory(rotated)


def test_what_a_retired_key_signed_last_is_checked_as_it_is_read(rotated: Path) -> None:
    keys = open_key_directory(rotated)
    system = [signer.verifier_key for signer in keys.signers("a/system")]
    trees = [SignedTree(origin="a/b", size=7, root=bytes(32).hex())]
    pages = state_retirement(keys.signers("a/system"), retired=system[1], successor=system[0], trees=trees)
    write_retirement(rotated, KEYS[0].public_key, pages)
    with keys.locked():
        keys.replace_ring(ring(KeyLife.RETIRING, KeyLife.ACTIVE))
    assert [len(keys.keys.history.keys_for("a/b", size)) for size in (7, 8)] == [2, 1]
    (file,) = rotated.glob("retirement-*")
    data = file.read_bytes()
    accepted = []
    for at in range(len(data)):
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        try:
            assert open_key_directory(rotated).keys.history == keys.keys.history
            accepted.append(at)
        except KeyDirectoryError:
            continue
    # Only that the retired key signs, too, may become illegible: it need not.
    assert len(accepted) < len(system[1].name) + 10
    more = [replace(pages[0], trees=(replace(trees[0], size=8),))]
    replace_file(file, canonical.encode([canonical.decode(data)[0]] * 2))  # type: ignore[index]
    with pytest.raises(KeyDirectoryError, match="is damaged"):
        open_key_directory(rotated)
    write_retirement(rotated, KEYS[0].public_key, more)
    with pytest.raises(KeyDirectoryError, match="is damaged"):
        open_key_directory(rotated)


def test_a_directory_that_stays_locked_is_not_waited_for_beyond_the_deadline(rotated: Path) -> None:
    with open_key_directory(rotated).locked():
        for timeout_s in (0.0, 0.001):
            with pytest.raises(BusyKeyDirectoryError), open_key_directory(rotated).locked(timeout_s=timeout_s):
                pass


def test_strays_of_a_crash_are_destroyed_and_keys_are_not(rotated: Path) -> None:
    write_later_key(rotated, SEEDS[2], KEYS[2].public_key)
    keys: KeyDirectory = open_key_directory(rotated)
    destroy_strays(rotated, keys.keys.ring)
    assert len(list(rotated.glob("signing-key*"))) == 2
    assert open_key_directory(rotated).keys == keys.keys


# Files


def test_a_generated_key_is_private_and_never_written_over(tmp_path: Path) -> None:
    file = tmp_path / "key"
    made = generate_key_file(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_key_file(file) == made
    with pytest.raises(FileExistsError):
        generate_key_file(file)
    assert read_key_file(file).key_id == made.key_id
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("write", [replace_file, create_file])
def test_a_link_that_was_planted_is_not_written_through(
    tmp_path: Path, write: Callable[[Path, bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 7)
    (tmp_path / "theirs").write_bytes(b"theirs")
    for name in ("key.new", "key.7"):
        (tmp_path / name).symlink_to(tmp_path / "theirs")
    write(tmp_path / "key", b"secret")
    assert (tmp_path / "theirs").read_bytes() == b"theirs"
    assert (tmp_path / "key").read_bytes() == b"secret"
    assert not (tmp_path / "key").is_symlink()
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_what_is_destroyed_is_overwritten_first_and_may_be_gone_already(tmp_path: Path) -> None:
    file = tmp_path / "key"
    create_file(file, b"secret")
    held = os.open(file, os.O_RDONLY)
    destroy(file)
    assert os.read(held, 100) == bytes(6)
    os.close(held)
    assert not file.exists()
    destroy(file)
    file.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(b"not a key")
    with pytest.raises(OSError, match="symbolic links"):
        destroy(file)
    assert (tmp_path / "elsewhere").read_bytes() == b"not a key"
