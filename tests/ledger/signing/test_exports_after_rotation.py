# SPDX-License-Identifier: Apache-2.0
"""What is given out of logs whose signer's keys have changed: sound data is never called broken, and is verified."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned
from ledger.anchoring.anchor_log import anchor_logs
from ledger.anchoring.published import store_cosignatures, store_stamp
from ledger.anchoring.timestamp import Stamp
from ledger.errors import BrokenError, Fault
from ledger.files.directory import LogDirectory, log_files
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.cosignature import Cosigner
from ledger.format.note import VerifierKey, format_note, open_checkpoint, parse_note, sign_note
from ledger.format.proof import check_proof
from ledger.format.sequence import Appended, Group, Stale
from ledger.format.signature import ED25519_COSIGNATURE
from ledger.format.witness_policy import WitnessPolicy
from ledger.proving.receipts import Receipts
from ledger.signing.keys import NoteSigner
from ledger.signing.rotation import new_file_key
from ledger.signing.signer import IssuedCheckpoint
from ledger.store.read import find_log, read_head
from testkit.lakeproof.operator import Operator
from testkit.ledger.appending import NOON, group
from testkit.ledger.cut_off import cut_off
from testkit.ledger.logs import change
from testkit.ledger.signer_installation import SignerSite, open_site

WITNESS = Cosigner.from_seed(ED25519_COSIGNATURE, name="w.example", seed=b"1" * 32)
STAGES = ("before", "overlapping", "retired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(SignerSite):
    """A signer at work, the operator who exports and proves, and a policy that asks for one witness."""

    @property
    def policy(self) -> Path:
        return self.directory / "policy"

    def witnessed(self) -> Operator:
        """Return the operator as where the policy is configured."""
        installation = self.operator.installation
        settings = replace(installation.settings, witness_policy=self.policy)
        return replace(self.operator, installation=replace(installation, settings=settings))

    async def run(self, operator: Operator, *arguments: object) -> str:
        """Run `lakeproof ledger` with these arguments, which must do it, and return what it says."""
        done = await asyncio.to_thread(operator.run, *arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    async def checked(self, told: str) -> None:
        """Do what a command has told to do with what it has written: it must verify."""
        command = told.splitlines()[-1].removeprefix("lakeproof ledger ").split(" --stamp ")[0]
        assert "OK" in await self.run(self.operator, *command.split())

    async def sign_system(self) -> IssuedCheckpoint:
        """Let the system log grow, and return what is signed of it then."""
        await self.signing.tell(group())
        (signed,) = [
            one for one in await self.signing.signer.sign_once() if one.checkpoint.origin == self.signing.system
        ]
        return signed

    async def vouch(self, signed: IssuedCheckpoint) -> None:
        """Have a checkpoint of the system log cosigned by the witness, and stamped."""
        stamp = Stamp(gen_time=NOON, not_later_than=NOON, policy="1.2", serial=1, authority="CN=tsa", nonce=1)
        size, (text, lines) = signed.checkpoint.size, parse_note(signed.note)
        note = format_note(text, [*lines, WITNESS.cosign(text, time_s=5)])
        installation = self.signing.installation
        dsn = installation.as_role(installation.roles.signer)
        async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
            await store_cosignatures(
                connection, signed.log_id, size=size, note=note, policy=WitnessPolicy.parse(self.policy.read_bytes())
            )
            await store_stamp(connection, signed.log_id, size=size, token=b"stamp %d" % size, stamp=stamp)

    async def stages(self) -> AsyncIterator[str]:
        """Let the keys change, one step at a time, while nobody vouches for what is signed since."""
        await self.signing.signer.sign_once()
        await self.vouch(await self.sign_system())
        yield STAGES[0]
        await self.signing.keeper().rotate(new_file_key)
        await self.sign_system()
        yield STAGES[1]
        await self.signing.keeper().retire()
        await self.sign_system()
        yield STAGES[2]


@pytest_asyncio.fixture
async def site(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(Site, database, installation, tmp_path) as site:
        site.policy.write_text(f"witness w {WITNESS.verifier_key.format()}\nquorum w\n")
        yield site


def receipts_of(site: Site) -> Receipts:
    installation = site.signing.installation
    return Receipts(installation.as_role(installation.roles.auditor), lambda _: site.signing.open().keys.history)


# Receipts


async def test_every_entry_has_a_receipt_after_a_rotation_in_a_log_that_has_not_grown(site: Site) -> None:
    signing = site.signing
    for _ in range(3):
        await signing.grow()
    await signing.keeper().rotate(new_file_key)
    await signing.signer.sign_once()
    async with site.operator.auditor() as auditor, receipts_of(site) as receipts:
        log = await find_log(auditor, signing.origin)
        for index in (2, 0, 1):  # what lies before the newest part of the tree that is kept is proven from the tiles
            proof = await receipts.receipt(log, index, timeout_s=20)
            assert check_proof(proof, [signing.open().first_verifier_key(signing.origin)]).index == index


# Exports and proofs


async def test_a_stamped_export_is_made_with_the_key_of_whatever_was_stamped(site: Site) -> None:
    first = site.signing.open().first_verifier_key(site.signing.system)
    async for stage in site.stages():
        out = site.directory / stage
        told = await site.run(site.operator, "export", "system", out, "--stamped")
        assert told.splitlines()[-1].startswith(f"lakeproof ledger verify {out} --key {first.format()} --stamp ")
        assert VerifierKey.parse((out / "vkey").read_bytes().decode().strip()) == first
        await site.checked(told)


async def test_what_the_witnesses_saw_before_a_rotation_is_published_while_they_are_away(site: Site) -> None:
    async for stage in site.stages():
        told = await site.run(site.witnessed(), "export", "system", site.directory / stage)
        await site.checked(told)
        told = await site.run(site.witnessed(), "prove", "system", 0, "--out", site.directory / f"{stage}.tlog-proof")
        await site.checked(told)


async def test_an_export_is_told_to_be_verified_with_the_newest_key_that_has_signed_it(site: Site) -> None:
    newest = ""
    async for stage in site.stages():
        told = await site.run(site.operator, "export", "system", site.directory / "one")
        newest = site.signing.open().signer(site.signing.system).verifier_key.format()
        assert told.endswith(f"--key {newest}\n"), stage
        assert (site.directory / "one" / "vkey").read_text() == newest + "\n"
        await site.checked(told)


async def test_a_key_never_lies_beside_a_checkpoint_that_it_has_not_signed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing, out = site.signing, site.directory / "out"
    await signing.grow()
    await site.run(site.operator, "export", signing.origin, out)
    await signing.keeper().rotate(new_file_key)
    await signing.grow()
    await signing.keeper().retire()
    await signing.grow()
    for cut in range(20):
        with monkeypatch.context() as patch:
            cut_off(patch, at=cut)
            done = await asyncio.to_thread(site.operator.run, "export", signing.origin, out)
        if (out / "vkey").exists():
            key = VerifierKey.parse((out / "vkey").read_text().strip())
            assert open_checkpoint((out / "checkpoint").read_bytes(), [key]).origin == signing.origin, cut
        if done.exit_code == 0:
            break
    await site.checked(done.stdout)
    assert LogDirectory(out).files() == {*log_files(3), "checkpoint", "vkey"}


# What the keys have not signed


async def test_what_a_retired_key_has_signed_since_is_not_given_out(site: Site) -> None:
    signing, stolen = site.signing, site.first_key()
    await signing.grow()
    await signing.keeper().rotate(new_file_key)
    await signing.grow()
    await signing.keeper().retire()
    await signing.appender.append(signing.log_id, group())
    async with site.operator.auditor() as auditor:
        log = await find_log(auditor, signing.origin)
        head = await read_head(auditor, log.log_id)
    forged = Checkpoint(origin=signing.origin, size=head.size, root=head.frontier.root())
    note = sign_note(format_checkpoint(forged), [NoteSigner(name=signing.origin, key=stolen)])
    insert = "INSERT INTO ledger.checkpoints (log_id, size, note) VALUES (%s, %s, %s)"
    change(site.database, insert, signing.log_id, head.size, note)
    for command in (("export", signing.origin, site.directory / "out"), ("prove", signing.origin, 0, "--out", "proof")):
        done = await asyncio.to_thread(site.operator.run, *command)
        assert (done.exit_code, "signature fault" in done.stderr) == (1, True), done.output
    async with receipts_of(site) as receipts:
        with pytest.raises(BrokenError) as caught:
            await receipts.receipt(log, 0, timeout_s=20)
    assert caught.value.fault is Fault.SIGNATURE


async def test_who_names_keys_is_given_what_one_of_them_has_signed(site: Site) -> None:
    signing = site.signing
    await signing.grow()
    old = signing.open().verifier_key(signing.origin).format()
    await signing.keeper().rotate(new_file_key)
    await signing.grow()
    await signing.keeper().retire()
    await signing.grow()
    new = signing.open().verifier_key(signing.origin).format()
    for number, keys in enumerate(([new], [old, new], [new, old])):
        named = [word for key in keys for word in ("--key", key)]
        told = await site.run(site.operator, "export", signing.origin, site.directory / str(number), *named)
        assert told.endswith(f"--key {new}\n")
        await site.checked(told)
    done = await asyncio.to_thread(
        site.operator.run, "export", signing.origin, site.directory / "refused", "--key", old
    )
    assert (done.exit_code, "signature fault" in done.stderr) == (1, True)


async def test_evidence_from_before_a_rotation_is_given_out_with_the_keys_that_have_signed_it(site: Site) -> None:
    signing = site.signing
    await signing.grow()
    async with site.operator.auditor() as auditor:
        system = await find_log(auditor, site.operator.installation.system_origin)

        async def append(log_id: int, added: Group, /) -> Appended | Stale:
            return await signing.appender.append(log_id, added)

        await anchor_logs(auditor, system, append, open_note=signing.open().open, clock=lambda: NOON)
    await signing.signer.sign_once()
    await signing.keeper().rotate(new_file_key)
    await signing.grow()
    await signing.keeper().retire()
    await signing.grow()
    told = await site.run(
        site.operator, "bundle", signing.origin, "--out", site.directory / "evidence", "--decision", 0
    )
    old, new = signing.open().first_verifier_key(signing.origin), signing.open().verifier_key(signing.system)
    assert told.endswith(f"--key {old.format()} --key {new.format()}\n")
    command = told.splitlines()[-1].removeprefix("lakeproof ledger ").split()
    assert "OK" in await site.run(site.operator, *command)


async def test_an_export_from_before_a_rotation_still_tells_what_was_erased(site: Site) -> None:
    signing, out = site.signing, site.directory / "out"
    await signing.grow()
    await site.run(site.operator, "export", signing.origin, out)
    await signing.keeper().rotate(new_file_key)
    await signing.grow()
    await signing.keeper().retire()
    await signing.grow()
    assert "nothing was erased" in await site.run(site.operator, "erase", signing.origin, "--replay", out)
    path = out / "checkpoint"
    path.write_bytes(path.read_bytes().replace(b"\n1\n", b"\n2\n"))
    done = await asyncio.to_thread(site.operator.run, "erase", signing.origin, "--replay", out)
    assert (done.exit_code, "signature fault" in done.stderr) == (1, True)
