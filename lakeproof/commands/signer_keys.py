# SPDX-License-Identifier: Apache-2.0
"""
The commands on the life of the signer's keys: `keys show`, `rotate`, `retire`, `generate`, `follow`, and for its
ML-DSA-44 keys `add-ml-dsa` and `retire-ml-dsa`.

They work while `lakeproof up` runs, which takes up the change in its next round of signing. `follow` is for those
who verify: it needs files and a key alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakeproof.commands.exits import Done, failure, progress, verdict
from lakeproof.commands.loading import command_group
from lakeproof.commands.opening import OpenInstallation, run_with_auditor
from lakeproof.commands.options import AsJson, TrustedKeys, pinned_keys
from lakeproof.console import one_line, show_done, show_json
from lakeproof.log_names import SYSTEM, find_named_log
from ledger.errors import KeyUnavailableError
from ledger.format.cosignature import ml_dsa_verifier_key
from ledger.format.key_history import KeyHistory
from ledger.format.note import VerifierKey
from ledger.format.verification import VerificationReport
from ledger.signing import rotation
from ledger.signing.key_directory import KeyDirectory
from ledger.signing.key_ring import KeyRecord, KeySource, MlDsaRecord
from ledger.signing.keys import key_id, parse_key_id
from ledger.signing.rotation import NewKey, agent_key, imported_file_key, new_file_key
from ledger.store.session import Connection

if TYPE_CHECKING:
    from lakeproof.installation import Installation


def add_commands(app: typer.Typer, open_installation: OpenInstallation) -> None:
    """
    Add the group `keys`; all but `generate` and `follow` call `open_installation`.
    """
    keys = command_group("Show, rotate and retire the signer's keys.")
    app.add_typer(keys, name="keys")
    _add_life(keys, open_installation)
    _add_ml_dsa(keys, open_installation)
    _add_following(keys)

    @keys.command()
    def show(*, as_json: AsJson = False) -> None:
        """Show the keys of this installation, where each is in its life, and what holds it."""
        with failure():
            listed = run_with_auditor(open_installation, list_keys)
            if as_json:
                show_json(listed)
                return
            for key in (*listed["keys"], *listed["ml_dsa_44"]):
                typer.echo(f"{key['state']:<12} {key['held_by']:<6} {key['id']}  {key['verifier_key']}")

    @keys.command()
    def generate(
        file: Annotated[Path, typer.Argument(help="The file to make.", show_default=False)], *, as_json: AsJson = False
    ) -> None:
        """Make a key in a new file of mode 0600, here or on another machine, for `rotate --from`."""
        from ledger.signing.keys import generate_key_file

        with failure():
            made = generate_key_file(file)
        show_done(f"{made.key_id} in {file}", {"id": made.key_id, "file": str(file)}, as_json=as_json)


def _add_following(keys: typer.Typer) -> None:
    @keys.command()
    def follow(
        system: Annotated[Path, typer.Argument(help="The system log, exported.", show_default=False)],
        log: Annotated[
            Path | None, typer.Argument(help="Another log of that signer, exported.", show_default=False)
        ] = None,
        *,
        key: TrustedKeys = None,
        as_json: AsJson = False,
    ) -> None:
        """Verify logs through rotations of the signer's keys. Exit code 0: verified, 1: broken, 2: could not tell."""
        from ledger.verify.anchored import verify_system_directory
        from ledger.verify.directory import verify_directory

        with verdict(as_json=as_json):
            pinned = pinned_keys(key)
            with progress("entries verified") as show_progress:
                report, history = verify_system_directory(system, pinned, progress=show_progress)
            reports = [report]
            if log is not None:
                with progress("entries verified") as show_progress:
                    reports.append(verify_directory(log, history, progress=show_progress))
            if as_json:
                show_json(_followed(history, reports))
                return
            for term in history.terms:
                typer.echo(f"{'in force' if term.last is None else 'retired':<9} {key_id(term.public)}")
            for one in reports:
                typer.echo(f"{one.size:,} entries of {one_line(one.origin)}, root {one.root.hex()}")
            typer.echo("OK")


def _add_life(keys: typer.Typer, open_installation: OpenInstallation) -> None:
    @keys.command()
    def rotate(
        *,
        brought: Annotated[
            Path | None,
            typer.Option("--from", metavar="FILE", help="A key that `generate` has made.", show_default=False),
        ] = None,
        agent_key: Annotated[
            str | None,
            typer.Option(
                "--agent-key",
                metavar="SHA256:…",
                help="A key of the agent, as `ssh-add -l` has it.",
                show_default=False,
            ),
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Let a new key sign together with the one in use; without an option it is made now, in a file."""
        with failure():
            if brought is not None and agent_key is not None:
                raise typer.BadParameter("name --from or --agent-key, not both")
            if agent_key is not None:
                done = run_with_auditor(open_installation, partial(rotate_to_agent_key, key_id=agent_key))
            elif brought is not None:
                done = run_with_auditor(open_installation, partial(rotate_to_file_key, file=brought))
            else:
                done = run_with_auditor(open_installation, rotate_to_new_key)
        done.show(as_json=as_json)

    @keys.command()
    def retire(*, as_json: AsJson = False) -> None:
        """Let the older of two keys sign no more, and destroy its private half."""
        with failure():
            run_with_auditor(open_installation, retire_key).show(as_json=as_json)


def _add_ml_dsa(keys: typer.Typer, open_installation: OpenInstallation) -> None:
    @keys.command("add-ml-dsa")
    def add(*, as_json: AsJson = False) -> None:
        """Make an ML-DSA-44 key, in a file. It signs every checkpoint, together with the keys that do already."""
        with failure():
            run_with_auditor(open_installation, add_ml_dsa_key).show(as_json=as_json)

    @keys.command("retire-ml-dsa")
    def retire(*, as_json: AsJson = False) -> None:
        """Let the older of two ML-DSA-44 keys, or the only one, sign no more, and destroy its private half."""
        with failure():
            run_with_auditor(open_installation, retire_ml_dsa_key).show(as_json=as_json)


def _followed(history: KeyHistory, reports: Sequence[VerificationReport]) -> dict[str, object]:
    """Return what `follow` has found, for `--json`."""
    return {
        "status": "verified",
        "keys": [{"id": key_id(term.public), "retired": term.last is not None} for term in history.terms],
        "logs": [{"origin": one.origin, "size": one.size, "root": one.root.hex()} for one in reports],
    }


async def list_keys(installation: Installation, _auditor: Connection) -> dict[str, list[dict[str, str]]]:
    """
    Return the keys of the installation, oldest first: id, state, what holds it, verifier key of the system log.

    Those of Ed25519 are the `keys`, the others `ml_dsa_44`.

    Raises:
        LedgerError: if there is no key yet, or it cannot be used.
    """
    origin, ring = installation.system_origin, installation.open_keys().keys.ring
    return {
        "keys": [_listed(record, record.source, _verifier_key(origin, record)) for record in ring.records],
        "ml_dsa_44": [
            _listed(record, KeySource.FILE, ml_dsa_verifier_key(origin, record.public).format())
            for record in ring.ml_dsa
        ],
    }


async def rotate_to_new_key(installation: Installation, auditor: Connection) -> Done:
    """
    Rotate to a key that is made now, and say what to do next.

    Raises:
        LedgerError, OSError: as `ledger.signing.rotation.KeyRotation.rotate`.
    """
    return await _rotate(installation, auditor, lambda _: new_file_key())


async def rotate_to_file_key(installation: Installation, auditor: Connection, file: Path) -> Done:
    """
    Rotate to the key in a file; raises as `rotate_to_new_key`.
    """
    return await _rotate(installation, auditor, lambda _: imported_file_key(file))


async def rotate_to_agent_key(installation: Installation, auditor: Connection, key_id: str) -> Done:
    """
    Rotate to a key of the agent; raises as `rotate_to_new_key`.
    """
    agent_key_id = parse_key_id(key_id)
    return await _rotate(installation, auditor, lambda keys: _agent_key(keys, agent_key_id))


async def retire_key(installation: Installation, auditor: Connection) -> Done:
    """
    Retire the overlapping key, and say what is left to do.

    Raises:
        LedgerError, OSError: as `ledger.signing.rotation.KeyRotation.retire`.
    """
    from lakeproof.signing import make_signer, open_key_rotation  # the whole system: only what changes keys needs it

    keys, system = installation.open_keys(), await find_named_log(installation, auditor, SYSTEM)
    async with open_key_rotation(installation, system, keys) as rotation:
        await make_signer(installation, keys).sign_once()  # stands by if `up` runs, else confirms the logs
        retired = await rotation.retire()
    active = keys.keys.ring.active
    left = (
        "its private half is destroyed; destroy it in backups of the key directory, too"
        if retired.source is KeySource.FILE
        else "remove it from the agent, too (ssh-add -d)"
    )
    return Done(
        f"{retired.key_id} is retired: {left}\n{active.key_id} signs alone",
        {"retired": retired.key_id, "held_by": retired.source.value, "signing": [active.key_id]},
    )


async def add_ml_dsa_key(installation: Installation, _auditor: Connection) -> Done:
    """
    Make an ML-DSA-44 key that signs every checkpoint from now on, and say what to do next.

    Raises:
        LedgerError, OSError: as `ledger.signing.rotation.add_ml_dsa_key`.
    """
    added = await asyncio.to_thread(rotation.add_ml_dsa_key, installation.open_keys())
    key = ml_dsa_verifier_key(installation.system_origin, added.public).format()
    said = (
        f"{added.key_id} signs every new checkpoint in addition to Ed25519\n"
        f"{key}\n"
        "Back up the key directory now. Hand the new verifier keys to those who verify (lakeproof ledger key <log> "
        "--ml-dsa)"
    )
    return Done(said, {"id": added.key_id, "verifier_key": key})


async def retire_ml_dsa_key(installation: Installation, _auditor: Connection) -> Done:
    """
    Retire the older of two ML-DSA-44 keys, or the only one, and say what is left to do.

    Raises:
        LedgerError, OSError: as `ledger.signing.rotation.retire_ml_dsa_key`.
    """
    keys = installation.open_keys()
    retired = await asyncio.to_thread(rotation.retire_ml_dsa_key, keys)
    signing = keys.keys.ring.ml_dsa_signing
    left = f"{signing[0].key_id} signs on" if signing else "Ed25519 signs alone"
    return Done(
        f"{retired.key_id} is retired: its private half is destroyed; destroy it in backups of the key directory, too\n"
        f"{left}",
        {"retired": retired.key_id, "held_by": KeySource.FILE.value, "signing": [key.key_id for key in signing]},
    )


def _listed(record: KeyRecord | MlDsaRecord, source: KeySource, verifier_key: str) -> dict[str, str]:
    return {
        "id": record.key_id,
        "state": record.life.value,
        "held_by": source.value,
        "verifier_key": verifier_key,
    }


async def _rotate(installation: Installation, auditor: Connection, make: Callable[[KeyDirectory], NewKey]) -> Done:
    """Let a new key join, and sign with it at once."""
    from lakeproof.signing import make_signer, open_key_rotation

    keys, system = installation.open_keys(), await find_named_log(installation, auditor, SYSTEM)
    signer = make_signer(installation, keys)
    async with open_key_rotation(installation, system, keys) as rotation:
        await signer.sign_once()  # stands by if `up` runs, else confirms the logs
        joined = await rotation.rotate(lambda: make(keys))
        await signer.sign_once()
    key = _verifier_key(system.origin, joined)
    said = (
        f"{joined.key_id} signs together with the previous key\n"
        f"{key}\n"
        "Back up the key directory now. Hand the new verifier keys to those who verify (lakeproof ledger key <log>); "
        "when they have them: lakeproof ledger keys retire"
    )
    return Done(said, {"id": joined.key_id, "verifier_key": key})


def _agent_key(keys: KeyDirectory, key_id: str) -> NewKey:
    """Return a key that the agent of this installation holds; raises KeyUnavailableError if there is none."""
    if keys.agent is None:
        raise KeyUnavailableError("no agent is known: name its socket in LAKEPROOF_SIGNER_AGENT")
    return agent_key(keys.agent, key_id)


def _verifier_key(origin: str, record: KeyRecord) -> str:
    return VerifierKey.ed25519(name=origin, public=record.public).format()
