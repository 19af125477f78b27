# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that a log signs with ML-DSA-44, too: how they leave, and what those make of it who verify them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio
from typer.testing import Result

from lakeproof.provision import Provisioned
from ledger.errors import BrokenError, KeyDirectoryError
from ledger.files.atomic import RealDisk, replace_file
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.cosignature import Cosigner
from ledger.format.note import (
    Ed25519Signer,
    Signature,
    VerifierKey,
    format_note,
    open_checkpoint,
    open_note,
    parse_note,
    sign_note,
)
from ledger.format.signature import ML_DSA_44_COSIGNATURE, cosigned_at
from ledger.format.verification import VerificationReport
from ledger.signing.key_directory import NOTES_FILE
from ledger.signing.rotation import add_ml_dsa_key, new_file_key, retire_ml_dsa_key
from ledger.signing.signer import CheckpointSigner
from ledger.verify.anchored import with_ml_dsa
from ledger.witness.rules import AddCheckpoint, format_request
from ledger.witness.store import WitnessStore
from testkit.ledger.logs import change
from testkit.ledger.signer_installation import SignerSite, open_site
from testkit.ledger.standalone import standalone
from testkit.ledger.witnesses import make_witness, opened
from testkit.servers.c2sp_program import run_c2sp

TIME_S = 1_800_000_000
NOTE_SIZE_BYTES_MAX = 4_000
"""Of a note with one line of each kind: 3,300 bytes are the line of ML-DSA-44."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(SignerSite):
    """A signer at work, and the operator in which its logs are verified."""

    @property
    def ed25519(self) -> VerifierKey:
        return self.signing.open().verifier_key(self.signing.origin)

    @property
    def ml_dsa(self) -> VerifierKey:
        """The newest ML-DSA-44 key."""
        return self.signing.open().ml_dsa_verifier_keys(self.signing.origin)[0]

    async def run(self, *arguments: object) -> Result:
        """Run `lakeproof ledger` with these arguments."""
        return await asyncio.to_thread(self.operator.run, *arguments)

    async def said(self, *arguments: object, key: VerifierKey | None = None) -> str:
        """Return what a command says that finds nothing broken."""
        done = await self.run(*arguments, *(["--key", key.format()] if key else []))
        assert (done.exit_code, done.stderr) == (0, "")
        return done.stdout

    async def fault(self, *arguments: object) -> str:
        """Return the fault that a command finds."""
        done = await self.run(*arguments, "--json")
        assert done.exit_code == 1, done.output
        fault: str = json.loads(done.stdout)["fault"]
        return fault

    async def grow(self) -> bytes:
        """Let the tenant's log grow, and return the note that then leaves."""
        signed = await self.signing.grow()
        return next(one.note for one in signed if one.log_id == self.signing.log_id)

    async def export(self, name: str) -> Path:
        """Export the tenant's log."""
        path = self.directory / name
        assert (await self.run("export", self.signing.origin, path)).exit_code == 0
        return path


@pytest_asyncio.fixture
async def site(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(Site, database, installation, tmp_path) as site:
        yield site


def without(note: bytes, key: VerifierKey) -> bytes:
    """Return the note without the lines of a key."""
    text, lines = parse_note(note)
    return format_note(text, [line for line in lines if line.key_id != key.key_id])


def corrupted(note: bytes, key: VerifierKey) -> bytes:
    """Return the note with another signature in the line of a key."""
    text, lines = parse_note(note)
    return format_note(text, [_corrupted(line) if line.key_id == key.key_id else line for line in lines])


def _corrupted(line: Signature) -> Signature:
    return replace(line, signature=line.signature[:-1] + bytes([line.signature[-1] ^ 1]))


def stored(site: Site, note: bytes) -> None:
    """Make `note` the newest one in the database."""
    change(
        site.database,
        "UPDATE ledger.checkpoints AS c SET note = %s WHERE log_id = %s"
        " AND size = (SELECT max(size) FROM ledger.checkpoints WHERE log_id = c.log_id)",
        note,
        site.signing.log_id,
    )


def test_only_the_keys_of_the_log_itself_are_expected_on_its_checkpoint() -> None:
    keys = {
        name: Cosigner.from_seed(ML_DSA_44_COSIGNATURE, name=f"logs.example/{name}", seed=bytes(32)).verifier_key
        for name in "abc"
    }
    log = Ed25519Signer.from_seed(name="logs.example/b", seed=bytes(32))
    checkpoint = Checkpoint(origin=log.name, size=0, root=bytes(32))
    note = sign_note(format_checkpoint(checkpoint), [log])
    report = VerificationReport(
        origin=log.name, size=0, root=checkpoint.root, signed_size=0, checkpoints=1, parts=0, elapsed_s=0.0
    )
    told = with_ml_dsa(report, note, [log.verifier_key, *keys.values()])
    assert told.checked == ()
    assert [f"logs.example/b+{keys['b'].key_id.hex()}" in missing for missing in told.unchecked] == [True]


# The signer


async def test_an_added_key_signs_the_next_checkpoint_beside_ed25519(site: Site) -> None:
    (line,) = parse_note(await site.grow())[1]
    assert line.key_id == site.ed25519.key_id
    add_ml_dsa_key(site.signing.open())  # as another process does, beside the signer that runs
    note = await site.grow()
    first, second = parse_note(note)[1]
    assert (first.name, first.key_id) == (site.signing.origin, site.ed25519.key_id)
    assert (second.name, second.key_id) == (site.signing.origin, site.ml_dsa.key_id)
    for keys in ([site.ed25519], [site.ml_dsa], [site.ed25519, site.ml_dsa]):
        assert open_checkpoint(note, keys).origin == site.signing.origin
    assert open_note(note, [site.ed25519, site.ml_dsa]).verified == (site.ed25519, site.ml_dsa)
    assert len(note) < NOTE_SIZE_BYTES_MAX
    for key in (site.ed25519, site.ml_dsa):
        with pytest.raises(BrokenError):
            open_note(corrupted(note, key), [site.ed25519, site.ml_dsa])
    retire_ml_dsa_key(site.signing.open())
    (line,) = parse_note(await site.grow())[1]
    assert line.key_id == site.ed25519.key_id


async def test_the_line_carries_the_time_of_the_signers_clock(site: Site) -> None:
    add_ml_dsa_key(site.signing.open())
    dsn = site.signing.installation.as_role(site.signing.installation.roles.signer)
    site.signing.signer = CheckpointSigner(dsn, site.signing.open(), clock=lambda: TIME_S + 0.9)
    _, line = parse_note(await site.grow())[1]
    assert cosigned_at(line.signature) == TIME_S


async def test_a_rotation_of_ed25519_changes_nothing_of_it(site: Site) -> None:
    add_ml_dsa_key(site.signing.open())
    await site.grow()
    before = site.ml_dsa
    await site.signing.keeper().rotate(new_file_key)
    during = await site.grow()
    assert len(parse_note(during)[1]) == 3
    assert open_note(during, [before]).verified == (before,)
    await site.signing.keeper().retire()
    after = await site.grow()
    assert len(parse_note(after)[1]) == 2
    assert open_note(after, [before]).verified == (before,)
    assert "OK" in await site.said("verify", "--log", site.signing.origin)


async def test_a_restored_database_gets_its_checkpoint_back_to_the_byte(site: Site) -> None:
    add_ml_dsa_key(site.signing.open())
    note = await site.grow()
    change(site.database, "DELETE FROM ledger.checkpoints WHERE log_id = %s", site.signing.log_id)
    site.signing.signer = site.signing.started()
    again = [one for one in await site.signing.signer.sign_once() if one.log_id == site.signing.log_id]
    assert [(one.note, one.put_back) for one in again] == [(note, True)]
    assert await site.grow()


async def test_a_bad_line_beside_the_key_or_in_the_database_is_not_gone_on_from(site: Site) -> None:
    add_ml_dsa_key(site.signing.open())
    note = await site.grow()
    stored(site, corrupted(note, site.ml_dsa))
    site.signing.signer = site.signing.started()
    assert await site.signing.signer.sign_once() == []
    assert "ML-DSA-44" in str(site.signing.signer.refused[site.signing.origin])
    stored(site, note)
    assert await site.grow()
    line = parse_note(await site.grow())[1][-1]
    notes = site.signing.path / NOTES_FILE
    kept, genuine = notes.read_text(), line.format().removesuffix("\n")
    assert genuine in kept
    replace_file(notes, kept.replace(genuine, _corrupted(line).format().removesuffix("\n")).encode())
    with pytest.raises(KeyDirectoryError, match=r"last-notes is damaged .*ML-DSA-44"):
        site.signing.open().read_notes()


async def test_a_witness_cosigns_with_or_without_knowing_the_key(site: Site, tmp_path: Path) -> None:
    add_ml_dsa_key(site.signing.open())
    note = await site.grow()
    request = format_request(AddCheckpoint(old_size=0, proof=(), note=note))
    for name, keys in (("one", [site.ed25519]), ("both", [site.ed25519, site.ml_dsa])):
        path = make_witness(tmp_path / name)
        WitnessStore(path, RealDisk()).add_log(site.signing.origin, keys)
        with opened(path) as witness:
            lines = witness.add_checkpoint(request)
            every = [site.ed25519, site.ml_dsa, *witness.verifier_keys]
            assert open_note(note + lines, every).verified == tuple(every)


async def test_a_foreign_implementation_opens_both_lines(site: Site) -> None:
    add_ml_dsa_key(site.signing.open())
    note = await site.grow()
    keys = [site.ed25519, site.ml_dsa]
    said = run_c2sp("open", *(key.format() for key in keys), given=note).decode()
    assert said.splitlines() == [f"{key.name} {key.key_id.hex()}" for key in keys]
    for key in keys:
        with pytest.raises(subprocess.CalledProcessError):
            run_c2sp("open", *(key.format() for key in keys), given=corrupted(note, key))


# Verification


async def test_verify_reports_the_line_if_the_key_is_pinned(site: Site) -> None:
    add_ml_dsa_key(site.signing.open())
    await site.grow()
    exported = await site.export("exported")
    reported = f"checked    ML-DSA-44 signature of {site.signing.origin}+{site.ml_dsa.key_id.hex()}"
    both = ["--key", site.ed25519.format(), "--key", site.ml_dsa.format()]
    for arguments in (["verify", exported, *both], ["verify", "--log", site.signing.origin, *both]):
        assert reported in await site.said(*arguments)
    assert reported in await site.said("verify", exported, key=site.ml_dsa)  # alone: Ed25519 is not believed
    assert "ML-DSA" not in await site.said("verify", exported, key=site.ed25519)
    assert reported in await site.said("verify", "--log", site.signing.origin)  # with the keys of this installation


async def test_verify_says_that_the_line_of_a_pinned_key_is_missing(site: Site) -> None:
    await site.grow()
    before = await site.export("before")
    add_ml_dsa_key(site.signing.open())
    missing = f"NOT CHECKED: an ML-DSA-44 signature of {site.signing.origin}+{site.ml_dsa.key_id.hex()}"
    both = ["--key", site.ed25519.format(), "--key", site.ml_dsa.format()]
    assert missing in await site.said("verify", before, *both)
    assert missing in await site.said("verify", "--log", site.signing.origin)
    assert await site.fault("verify", before, "--key", site.ml_dsa.format()) == "signature"
    note = await site.grow()
    exported = await site.export("exported")
    assert missing not in await site.said("verify", exported, *both)
    (exported / "checkpoint").write_bytes(without(note, site.ml_dsa))
    stored(site, without(note, site.ml_dsa))
    assert missing in await site.said("verify", exported, *both)
    assert missing in await site.said("verify", "--log", site.signing.origin, *both)


async def test_verify_finds_a_corrupted_line_of_a_pinned_key_and_ignores_it_otherwise(site: Site) -> None:
    add_ml_dsa_key(site.signing.open())
    note = await site.grow()
    exported = await site.export("exported")
    bad = corrupted(note, site.ml_dsa)
    (exported / "checkpoint").write_bytes(bad)
    assert "OK" in await site.said("verify", exported, key=site.ed25519)
    ran = standalone(exported, [site.ed25519])
    assert ran.code == 0
    assert f"NOT CHECKED: a signature by {site.signing.origin!r}" in ran.output
    both = ["--key", site.ed25519.format(), "--key", site.ml_dsa.format()]
    assert await site.fault("verify", exported, *both) == "signature"
    (exported / "checkpoint").write_bytes(corrupted(note, site.ed25519))
    assert await site.fault("verify", exported, *both) == "signature"
    stored(site, bad)
    for arguments in ([], both):
        assert await site.fault("verify", "--log", site.signing.origin, *arguments) == "signature"


async def test_a_pinned_key_counts_beside_what_the_system_log_tells_of_the_others(site: Site) -> None:
    signing = site.signing
    pinned = ["--key", site.ed25519.format()]
    add_ml_dsa_key(signing.open())
    pinned += ["--key", site.ml_dsa.format()]
    await site.grow()
    await signing.keeper().rotate(new_file_key)
    await site.grow()
    await signing.keeper().retire()
    note = await site.grow()
    exported, system = await site.export("exported"), site.directory / "system"
    assert (await site.run("export", signing.system, system)).exit_code == 0
    reported = f"checked    ML-DSA-44 signature of {signing.origin}"
    assert reported in await site.said("verify", exported, "--anchored-in", system, *pinned)
    assert reported in await site.said("verify", "--log", signing.origin, *pinned)
    for arguments in (["--log", signing.origin], [exported, "--anchored-in", system]):
        alone = await site.run("verify", *arguments, "--key", site.ml_dsa.format())
        assert (alone.exit_code, alone.stdout) == (2, "")
        assert "pin one of those, too" in alone.stderr
    absent = f"NOT CHECKED: an ML-DSA-44 signature of {signing.origin}"
    (exported / "checkpoint").write_bytes(without(note, site.ml_dsa))
    assert absent in await site.said("verify", exported, "--anchored-in", system, *pinned)
    (exported / "checkpoint").write_bytes(corrupted(note, site.ml_dsa))
    assert await site.fault("verify", exported, "--anchored-in", system, *pinned) == "signature"


# The commands


async def test_keys_are_added_shown_and_retired_by_commands(site: Site) -> None:
    assert "no ML-DSA-44 key signs" in (await site.run("key", site.signing.origin, "--ml-dsa")).stderr
    assert "none to retire" in (await site.run("keys", "retire-ml-dsa")).stderr
    added, vkey, *rest = (await site.said("keys", "add-ml-dsa")).splitlines()
    assert added.endswith("signs every new checkpoint in addition to Ed25519")
    assert VerifierKey.parse(vkey) == site.signing.open().ml_dsa_verifier_keys(site.signing.system)[0]
    assert "Back up the key directory" in rest[0]
    assert await site.said("key", site.signing.origin) == f"{site.ed25519.format()}\n"
    assert await site.said("key", site.signing.origin, "--ml-dsa") == f"{site.ml_dsa.format()}\n"
    shown = (await site.said("keys", "show")).splitlines()
    assert [line.split()[:2] for line in shown] == [["active", "file"]] * 2
    assert shown[1].split()[2:] == [added.split()[0], vkey]
    first = site.ml_dsa
    await site.said("keys", "add-ml-dsa")
    assert await site.said("key", site.signing.origin, "--ml-dsa") == f"{site.ml_dsa.format()}\n{first.format()}\n"
    assert "retire one first" in (await site.run("keys", "add-ml-dsa")).stderr
    said = await site.said("keys", "retire-ml-dsa")
    assert said.startswith(f"{added.split()[0]} is retired: its private half is destroyed")
    assert said.splitlines()[1].endswith("signs on")
    assert (await site.said("keys", "retire-ml-dsa")).splitlines()[1] == "Ed25519 signs alone"
    listed = json.loads(await site.said("keys", "show", "--json"))
    assert [key["state"] for key in listed["ml_dsa_44"]] == ["retired", "retired"]
    assert [key["state"] for key in listed["keys"]] == ["active"]
