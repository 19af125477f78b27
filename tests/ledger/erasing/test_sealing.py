# SPDX-License-Identifier: Apache-2.0
"""Sealed parts open with the right key, for the right part, and never again once the key is destroyed."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from ledger.erasing.sealer import Sealer
from ledger.erasing.subject_keys import KeyFolder, open_key_encryption, open_key_folder
from ledger.errors import BrokenError, Fault, FormatError, KeyDirectoryError
from ledger.format.event import Part
from ledger.format.sealing import PLAIN, KeyOpener, SealedPart, StoredPart, SubjectKeysError, key_id_of, stored_bytes
from ledger.format.sequence import Group
from testkit.ledger.appending import group, new_id
from testkit.ledger.erasing import ADA, EVE, about, key_folder

TEXT = b"ada@acme.example asked"


@pytest.fixture
def keys(tmp_path: Path) -> KeyFolder:
    return key_folder(tmp_path)


async def sealed_part(keys: KeyFolder, subject: str = ADA) -> SealedPart:
    sealed = await Sealer(keys).seal(Group(id=new_id(), then=(about(subject, {"principal": TEXT}),)))
    (part,) = sealed.then[0].parts
    assert isinstance(part, SealedPart)
    return part


def stored(part: Part, *, name: str | None = None, subject: str | None = None, data: bytes | None = None) -> StoredPart:
    return StoredPart(7, name or part.name, subject or part.subject, key_id_of(part), data or stored_bytes(part))


async def test_a_sealed_part_opens_to_what_it_was_and_shows_nothing_of_it(keys: KeyFolder) -> None:
    part = await sealed_part(keys)
    opened = KeyOpener(keys).open(stored(part))
    assert opened is not None
    assert (opened.salt, opened.payload, opened.subject) == (part.salt, TEXT, ADA)
    assert TEXT not in part.sealed
    assert part.salt not in part.sealed
    assert TEXT.decode() not in repr(part)


async def test_two_parts_are_never_sealed_alike(keys: KeyFolder) -> None:
    one, other = [await sealed_part(keys) for _ in range(2)]
    assert (one.key_id, one.sealed[:12]) != (other.key_id, other.sealed[:12])


@pytest.mark.parametrize("at", [0, 11, 12, 40, -1])
async def test_a_changed_byte_is_corruption_and_never_taken_for_erased(keys: KeyFolder, at: int) -> None:
    part = await sealed_part(keys)
    data = bytearray(part.sealed)
    data[at] ^= 1
    with pytest.raises(BrokenError) as found:
        KeyOpener(keys).open(stored(part, data=bytes(data)))
    assert (found.value.fault, found.value.index) == (Fault.PART, 7)


async def test_a_sealed_part_stands_for_nothing_else(keys: KeyFolder) -> None:
    part = await sealed_part(keys)
    for wrong in (stored(part, name="inputs"), stored(part, data=b"short")):
        with pytest.raises(BrokenError):
            KeyOpener(keys).open(wrong)
    keys.find_or_create(EVE)
    assert KeyOpener(keys).open(stored(part, subject=EVE)) is None


async def test_what_is_about_nobody_is_left_as_it_is(keys: KeyFolder) -> None:
    plain = group(about(None, {"inputs": TEXT}), about("system", {"inputs": TEXT}))
    assert await Sealer(keys).seal(plain) == plain
    assert not list(keys.path.glob("[0-9a-f][0-9a-f]"))


async def test_without_keys_a_sealed_part_is_not_taken_for_erased(keys: KeyFolder) -> None:
    part = await sealed_part(keys)
    with pytest.raises(SubjectKeysError, match="no keys"):
        PLAIN.open(stored(part))
    with pytest.raises(BrokenError):
        PLAIN.open(StoredPart(7, "inputs", None, None, bytes(31)))


async def test_a_destroyed_key_is_gone_for_every_process_at_once_and_for_ever(keys: KeyFolder, tmp_path: Path) -> None:
    other = key_folder(tmp_path)
    part = await sealed_part(keys)
    assert KeyOpener(other).open(stored(part)) is not None
    before = (keys.path / ADA[:2]).read_bytes()
    other.destroy(ADA)
    for process in (keys, other, key_folder(tmp_path)):
        assert KeyOpener(process).open(stored(part)) is None
        assert process.find_or_create(ADA) is None
        assert process.destroyed() == {ADA}
    assert before.split()[-1] not in b"".join(file.read_bytes() for file in keys.path.iterdir())
    other.destroy(ADA)  # again: nothing happens
    assert keys.destroyed() == {ADA}


async def test_what_a_slow_process_seals_for_an_erased_person_can_never_be_read(keys: KeyFolder) -> None:
    keys.destroy(ADA)
    part = await sealed_part(keys)
    assert KeyOpener(keys).open(stored(part)) is None
    assert keys.find(ADA) is None


async def test_erasing_one_leaves_the_others_of_the_same_file(keys: KeyFolder) -> None:
    beside = ADA[:2] + "f" * 30
    ada, other = await sealed_part(keys), await sealed_part(keys, beside)
    keys.destroy(ADA)
    assert KeyOpener(keys).open(stored(ada)) is None
    opened = KeyOpener(keys).open(stored(other))
    assert opened is not None
    assert opened.payload == TEXT


async def test_the_file_that_was_replaced_is_overwritten(keys: KeyFolder) -> None:
    await sealed_part(keys)
    with (keys.path / ADA[:2]).open("rb") as replaced:
        keys.destroy(ADA)
        assert set(replaced.read()) == {0}


def test_two_processes_that_make_a_key_at_once_agree(tmp_path: Path) -> None:
    one, other = key_folder(tmp_path), key_folder(tmp_path)
    assert one.id == other.id
    made = [process.find_or_create(ADA) for process in (one, other, one)]
    assert len({key.id for key in made if key is not None}) == 1


@pytest.mark.parametrize(
    "text", ["x\n", f"{ADA} destroyed", f"{ADA} {UUID(int=1)} kek AAAA=\n", f"{ADA} destroyed\n\n"]
)
def test_a_damaged_file_is_said_to_be_damaged(keys: KeyFolder, text: str) -> None:
    (keys.path / ADA[:2]).write_text(text)
    with pytest.raises(SubjectKeysError, match="damaged"):
        keys.find(ADA)
    with pytest.raises(SubjectKeysError, match="damaged"):
        keys.find_or_create(ADA)


def test_keys_are_nobody_else_s_and_another_key_encryption_key_opens_none(tmp_path: Path) -> None:
    keys = key_folder(tmp_path)
    keys.find_or_create(ADA)
    modes = {file.stat().st_mode & 0o077 for file in (keys.path, *keys.path.iterdir(), tmp_path / "kek")}
    assert modes == {0}
    stranger = open_key_folder(keys.path, open_key_encryption(tmp_path / "another"))
    with pytest.raises(SubjectKeysError, match="LAKEPROOF_KEY_ENCRYPTION_KEY"):
        stranger.find(ADA)
    (tmp_path / "kek").chmod(0o644)
    with pytest.raises(KeyDirectoryError, match="chmod"):
        open_key_encryption(tmp_path / "kek")
    keys.path.chmod(0o755)
    with pytest.raises(KeyDirectoryError, match="chmod"):
        key_folder(tmp_path / ".", kek="another")


def test_a_damaged_key_encryption_key_is_refused_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "kek"
    file.write_text("0123abcd c2VjcmV0\n")
    file.chmod(0o600)
    with pytest.raises(SubjectKeysError) as found:
        open_key_encryption(file)
    assert "c2VjcmV0" not in str(found.value)


@pytest.mark.parametrize("subject", ["system", "", "../../etc/passwd", "A" * 32])
def test_no_other_name_becomes_a_file(keys: KeyFolder, subject: str) -> None:
    for act in (keys.find_or_create, keys.destroy):
        with pytest.raises(FormatError):
            act(subject)
