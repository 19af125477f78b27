# SPDX-License-Identifier: Apache-2.0
"""What was disclosed and is erased since: an export that is made again holds none of it, with parts or without."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned
from ledger.errors import BrokenError
from ledger.files.directory import PARTS_FOLDER, TEMPORARY_SUFFIX, LogDirectory, parts_path
from ledger.format.sealing import KeyOpener
from ledger.proving.export import as_reader, export_log, export_parts
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.session import Connection
from ledger.verify.directory import verify_directory
from testkit.ledger.erasing import ADA, ASKED, EVE, Site, about, open_site
from testkit.ledger.logs import change


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasableLog:
    """A site whose log is exported into one directory again and again."""

    site: Site
    keys: KeyDirectory
    auditor: Connection
    out: Path

    async def sign(self) -> None:
        """Sign the log as it is."""
        await CheckpointSigner(
            self.site.installation.as_role(self.site.installation.roles.signer), self.keys
        ).sign_once()

    async def export(self) -> None:
        """Export what is signed of the log, without parts."""
        keys = [self.keys.verifier_key(self.site.log.origin)]
        await export_log(self.auditor, self.site.log, self.out, keys=keys, policy=None)

    async def disclose(self) -> int:
        """Sign the log and export it with its parts; return how many entries have some."""
        await self.sign()
        await self.export()
        login = self.site.installation.dsn
        async with await AsyncConnection.connect(login, autocommit=True) as reader, as_reader(reader, self.site.log):
            return await export_parts(reader, self.site.log, self.out, opener=KeyOpener(self.site.keys))

    def disclosed(self) -> dict[str, list[tuple[str, bytes]]]:
        """Return the names and the bytes of disclosed parts, by file."""
        directory = LogDirectory(self.out)
        return {
            file: [(part.name, part.payload) for part in directory.read_parts(int(file.rpartition("/")[2]))]
            for file in directory.files()
            if file.startswith(PARTS_FOLDER)
        }


@pytest.fixture
async def erasable(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[ErasableLog]:
    roles = installation.roles
    async with (
        open_site(database, installation, tmp_path) as site,
        await AsyncConnection.connect(installation.as_role(roles.auditor), autocommit=True) as auditor,
    ):
        keys = create_key_directory(tmp_path / "signer")
        yield ErasableLog(site=site, keys=keys, auditor=auditor, out=tmp_path / "export")


async def test_what_is_erased_is_in_no_export_that_is_made_again(erasable: ErasableLog) -> None:
    for person, word in ((ADA, b"ada"), (EVE, b"eve")):
        await erasable.site.tell(about(person, {"inputs": word, "principal": word}))
    assert await erasable.disclose() == 2
    await erasable.site.eraser.erase_part(erasable.site.log, 1, "inputs", ASKED)
    assert await erasable.disclose() == 2
    assert erasable.disclosed() == {
        parts_path(0): [("inputs", b"ada"), ("principal", b"ada")],
        parts_path(1): [("principal", b"eve")],
    }
    await erasable.site.eraser.erase_subject(erasable.site.log, ADA, ASKED)
    await erasable.sign()
    await erasable.export()
    assert erasable.disclosed() == {}, "nobody can tell from a log which parts were about Ada"
    assert await erasable.disclose() == 1
    assert erasable.disclosed() == {parts_path(1): [("principal", b"eve")]}
    assert verify_directory(erasable.out, [erasable.keys.verifier_key(erasable.site.log.origin)]).parts == 1


async def test_what_an_export_that_was_cut_off_has_begun_to_write_is_removed_too(erasable: ErasableLog) -> None:
    await erasable.site.tell(about(ADA, {"inputs": b"ada"}))
    for again in (erasable.export, erasable.disclose):
        await erasable.disclose()
        begun = erasable.out / (parts_path(0) + TEMPORARY_SUFFIX)
        begun.write_bytes(b"ada")
        note = erasable.out / "parts" / "README"
        note.write_text("not ours")
        await again()
        assert not begun.exists()
        assert note.read_text() == "not ours"
        note.unlink()


async def test_an_export_that_fails_takes_no_parts_away(erasable: ErasableLog, database: str) -> None:
    await erasable.site.tell(about(ADA, {"inputs": b"ada"}))
    await erasable.disclose()
    before = erasable.disclosed()
    await erasable.site.tell(about(ADA, {"inputs": b"more"}))
    await erasable.sign()
    change(database, "DELETE FROM ledger.entries WHERE index = 1")
    with pytest.raises(BrokenError):
        await erasable.export()
    assert erasable.disclosed() == before
