# SPDX-License-Identifier: Apache-2.0
"""Verification through the life of the signer's keys: a retired key vouches for what it had signed, and no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest_asyncio

from lakeproof.provision import Provisioned
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.note import VerifierKey, sign_note
from ledger.signing.keys import FileKey, NoteSigner
from ledger.signing.rotation import new_file_key
from ledger.store.read import read_head
from testkit.ledger.appending import group
from testkit.ledger.logs import change, head_of, put, rows_of
from testkit.ledger.signer_installation import SignerSite, open_site


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(SignerSite):
    """A signer at work, and the operator in which its logs are verified."""

    async def run(self, *arguments: object) -> int:
        """Run `lakeproof ledger` with these arguments, and return its exit code; what it says is JSON."""
        done = await asyncio.to_thread(self.operator.run, *arguments)
        assert not done.stderr, done.stderr
        return done.exit_code

    async def broken(self, *arguments: object) -> tuple[str, int | None]:
        """Return fault and index of what a command calls broken."""
        done = await asyncio.to_thread(self.operator.run, *arguments, "--json")
        assert done.exit_code == 1, done.output
        said = json.loads(done.stdout)
        return said["fault"], said["index"]

    async def export(self, name: str) -> tuple[Path, Path]:
        """Export the tenant's log and the system log."""
        paths = self.directory / f"{name}-log", self.directory / f"{name}-system"
        for origin, path in zip((self.signing.origin, self.signing.system), paths, strict=True):
            assert await self.run("export", origin, path) == 0
        return paths

    async def sign_as(self, key: FileKey) -> None:
        """Append to the tenant's log, and store a checkpoint over it that this key alone has signed."""
        await self.signing.appender.append(self.signing.log_id, group())
        async with self.operator.auditor() as auditor:
            head = await read_head(auditor, self.signing.log_id)
        checkpoint = Checkpoint(origin=self.signing.origin, size=head.size, root=head.frontier.root())
        self.store(sign_note(format_checkpoint(checkpoint), [NoteSigner(name=self.signing.origin, key=key)]), head.size)

    def store(self, note: bytes, size: int) -> None:
        """Store a checkpoint of the tenant's log as its signer would."""
        insert = "INSERT INTO ledger.checkpoints (log_id, size, note) VALUES (%s, %s, %s)"
        change(self.database, insert, self.signing.log_id, size, note)


@pytest_asyncio.fixture
async def site(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(Site, database, installation, tmp_path) as site:
        yield site


async def test_honest_checkpoints_verify_before_during_and_after_a_change_of_keys(site: Site) -> None:
    signing = site.signing
    first = signing.open().first_verifier_key(signing.origin)
    vkeys: list[VerifierKey] = [first]

    async def verified() -> None:
        await signing.grow()
        for pinned in ([], *(["--key", key.format()] for key in vkeys)):
            assert await site.run("verify", "--log", signing.origin, *pinned) == 0

    await verified()
    await signing.keeper().rotate(new_file_key)
    vkeys.append(signing.open().signer(signing.origin).verifier_key)
    await verified()
    during = await site.export("during")
    await signing.keeper().retire()
    await verified()
    after = await site.export("after")
    for key in vkeys:
        assert await site.run("verify", "--log", signing.system, "--key", key.format()) == 0
        for log, system in (during, after, (during[0], after[1])):
            assert await site.run("verify", log, "--anchored-in", system, "--key", key.format()) == 0
    kept = during[0] / "checkpoint"
    for pinned in ([], ["--key", first.format()]):
        assert await site.run("verify", "--log", signing.origin, "--since", kept, *pinned) == 0
    # Without the system log nothing vouches for a key but the one that is pinned.
    assert await site.broken("verify", after[0], "--key", first.format()) == ("signature", None)


async def test_a_newer_checkpoint_that_the_retired_key_has_signed_is_refused(site: Site) -> None:
    signing = site.signing
    stolen = site.first_key()
    pinned = ["--key", signing.open().first_verifier_key(signing.origin).format()]
    await signing.grow()
    await signing.keeper().rotate(new_file_key)
    await signing.grow()
    kept, _ = await site.export("during")
    await signing.keeper().retire()
    await signing.grow()
    log, system = await site.export("after")

    note = (log / "checkpoint").read_bytes()
    text = note[: note.index(b"\n\n") + 1].decode()
    (log / "checkpoint").write_bytes(sign_note(text, [NoteSigner(name=signing.origin, key=stolen)]))
    assert await site.broken("verify", log, "--anchored-in", system, *pinned) == ("signature", None)

    await site.sign_as(stolen)
    for arguments in ([], pinned, ["--since", kept / "checkpoint"], ["--since", kept / "checkpoint", *pinned]):
        assert await site.broken("verify", "--log", signing.origin, *arguments) == ("signature", None)


async def test_a_log_that_the_retired_key_has_signed_anew_up_to_its_end_is_refused(site: Site) -> None:
    signing = site.signing
    stolen = site.first_key()
    pinned = ["--key", signing.open().first_verifier_key(signing.origin).format()]
    await signing.grow()
    await signing.keeper().rotate(new_file_key)
    await signing.grow()
    await signing.keeper().retire()
    (last,) = signing.open().keys.history.last_trees(signing.origin)
    forged = rows_of(20, log=signing.origin)
    await put(site.database, signing.log_id, forged)
    change(site.database, "DELETE FROM ledger.checkpoints WHERE log_id = %s", signing.log_id)
    root = head_of(forged[: last.size]).frontier.root()
    text = format_checkpoint(Checkpoint(origin=signing.origin, size=last.size, root=root))
    site.store(sign_note(text, [NoteSigner(name=signing.origin, key=stolen)]), last.size)
    for arguments in ([], pinned):
        assert await site.broken("verify", "--log", signing.origin, *arguments) == ("root", None)
