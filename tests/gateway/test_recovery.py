# SPDX-License-Identifier: Apache-2.0
"""
A gateway whose database was set back: log and guarded rows come back from an export, or another log begins.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.admin.application import OPERATOR
from lakeproof.services import Services
from lakeproof.signing import open_signer
from ledger.anchoring.anchor_log import anchor_logs
from ledger.format.continuation import check_continuation
from ledger.format.note import Ed25519Signer
from ledger.format.tiles import parse_bundle
from ledger.signing.key_directory import NOTES_FILE
from ledger.verify.directory import verify_directory
from testkit.gateway.backup_history import NOON, live_before, live_on
from testkit.gateway.log_contents import check_deeply
from testkit.gateway.recovery_site import export, forget, guarded_rows, run, save, set_back
from testkit.gateway.sales import NAMESPACES, ORDERS, properties
from testkit.ledger.logs import change
from testkit.servers.gateways import Gateway


class Lived(NamedTuple):
    """An export of all that was done, and the id and the secret of a key that was made after the backup."""

    export: Path
    key_id: str
    secret: str


async def anchor(services: Services) -> None:
    """Sign all logs, and anchor them in the system log."""
    signer = await open_signer(services.installation)
    await signer.sign_once()
    async with services.gateway.database.as_role(services.gateway.roles.auditor) as connection:
        anchored = await anchor_logs(
            connection, services.system, services.gateway.append, open_note=signer.keys.open, clock=lambda: NOON
        )
    assert anchored.checkpoints


async def live_backed_up(gateway: Gateway, database: str, directory: Path) -> Lived:
    """Do what is in the backup, make it, do what it lacks, and export it all."""
    revoked = await live_before(gateway)
    save(database)
    made, secret = await live_on(gateway, revoked)
    return Lived(await export(gateway.services, gateway.acme.origin, directory / "acme"), made, secret)


@pytest.fixture
def database_of(gateway: Gateway) -> str:
    return gateway.services.installation.admin_dsn


async def test_a_log_and_its_guarded_rows_are_recovered(gateway: Gateway, database_of: str, tmp_path: Path) -> None:
    services, acme = gateway.services, gateway.acme
    path, made, secret = await live_backed_up(gateway, database_of, tmp_path)
    await export(services, services.system.origin, tmp_path / "system")
    rows = guarded_rows(database_of)
    assert all(rows[table] for table in rows if table != "ledger.erased_subjects")

    set_back(database_of)
    assert guarded_rows(database_of) != rows
    signer = await open_signer(services.installation)
    await signer.sign_once()
    assert acme.origin in signer.refused

    stranger = Ed25519Signer.from_seed(name=acme.origin, seed=bytes(32)).verifier_key
    refused = await run(services, "recover", "acme", "--from", path, "--key", stranger.format())
    assert (refused.exit_code, "signature fault" in refused.output) == (1, True), refused.output
    assert guarded_rows(database_of) != rows
    held = signer.verifier_key(acme.origin).format()
    told = await run(services, "recover", "acme", "--from", path, "--key", held)
    assert told.exit_code == 0, told.output
    assert "the signer has confirmed it" in told.output
    assert "KEY NOT PINNED" not in told.output
    assert guarded_rows(database_of) == rows
    await signer.sign_once()
    assert signer.refused == {}

    assert (await gateway.http.post(ORDERS, json=properties(n="after"))).status_code == 200
    await check_deeply(services, acme.log_id)
    await check_deeply(services, services.system.log_id)
    async with gateway.client(secret) as eve:
        assert (await eve.get(ORDERS)).status_code == 401, "its secret was lost with the row"
    await services.gateway.admin.revoke_key(acme.log_id, OPERATOR, key_id=made)
    again = await run(services, "recover", "acme", "--from", path)
    assert again.exit_code == 1
    assert "nothing is missing" in again.output


async def test_a_log_that_is_younger_than_the_backup_is_recovered_from_nothing(
    gateway: Gateway, database_of: str, tmp_path: Path
) -> None:
    services, acme = gateway.services, gateway.acme
    await live_on(gateway, await live_before(gateway))
    path = await export(services, acme.origin, tmp_path / "acme")
    rows = guarded_rows(database_of)
    forget(database_of, acme.log_id)
    signer = await open_signer(services.installation)
    await signer.sign_once()
    assert "no log of this origin" in str(signer.refused[acme.origin])
    stranger = await run(
        services, "recover", acme.origin[:-1] + ("1" if acme.origin.endswith("0") else "0"), "--from", path
    )
    assert (stranger.exit_code, "expected an origin" in stranger.output) == (1, True)
    told = await run(services, "recover", acme.origin, "--from", path, "--json")
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    assert (document["log"], document["from_index"], document["key_pinned"]) == (acme.origin, 0, False)
    assert document["signer"] == "the signer has confirmed it"
    recovered = guarded_rows(database_of)
    for table, found in recovered.items():
        assert [row[1:] for row in found] == [row[1:] for row in rows[table]], table


async def test_only_an_operator_adopts_lost_notes(gateway: Gateway, tmp_path: Path) -> None:
    services, acme = gateway.services, gateway.acme
    await live_before(gateway)
    await export(services, acme.origin, tmp_path / "acme")
    (services.installation.keys / NOTES_FILE).unlink()
    signer = await open_signer(services.installation)
    await signer.sign_once()
    assert "ledger adopt" in str(signer.refused[acme.origin])
    declined = await run(services, "adopt", "acme")
    assert (declined.exit_code, "newest checkpoint" in declined.output) == (1, True)
    await signer.sign_once()
    assert acme.origin in signer.refused
    for name, log in (("acme", acme.origin), ("system", services.system.origin)):
        told = await run(services, "adopt", name, "--yes", "--json")
        assert told.exit_code == 0, told.output
        assert json.loads(told.stdout)["log"] == log
        assert "newest checkpoint" in told.stderr
    await signer.sign_once()
    assert signer.refused == {}


async def test_an_export_without_what_rows_are_made_of_is_refused_and_another_goes_on(
    gateway: Gateway, database_of: str, tmp_path: Path
) -> None:
    services = gateway.services
    path = (await live_backed_up(gateway, database_of, tmp_path)).export
    rows = guarded_rows(database_of)
    set_back(database_of)
    (path / "parts").rename(tmp_path / "kept")
    told = await run(services, "recover", "acme", "--from", path)
    assert told.exit_code == 1
    assert "expected its payload part inputs" in told.output
    (tmp_path / "kept").rename(path / "parts")
    assert (await run(services, "recover", "acme", "--from", path)).exit_code == 0
    assert guarded_rows(database_of) == rows


async def test_rows_that_the_log_before_does_not_explain_stop_the_replay(
    gateway: Gateway, database_of: str, tmp_path: Path
) -> None:
    services = gateway.services
    path = (await live_backed_up(gateway, database_of, tmp_path)).export
    set_back(database_of)
    change(database_of, "UPDATE gateway.tables SET metadata_location = 'elsewhere' WHERE name = 'orders'")
    told = await run(services, "recover", "acme", "--from", path)
    assert told.exit_code == 1
    assert "guard table.swap" in told.output


async def test_a_log_that_no_export_has_goes_on_under_another_origin(
    gateway: Gateway, database_of: str, tmp_path: Path
) -> None:
    services, acme = gateway.services, gateway.acme
    await live_backed_up(gateway, database_of, tmp_path)
    await anchor(services)
    system = await export(services, services.system.origin, tmp_path / "system")
    kept = services.installation.open_keys().read_notes()[acme.origin]
    set_back(database_of)

    alone = await run(services, "recover", "system", "--new-origin", "--identity", "ada@acme.example")
    assert alone.exit_code == 1
    assert "from an export only" in alone.output
    await run(services, "recover", "system", "--from", system)
    await check_deeply(services, services.system.log_id)  # the groups of anchors are counted again, too

    told = await run(services, "recover", acme.origin, "--new-origin", "--identity", "ada@acme.example")
    assert told.exit_code == 0, told.output
    (successor,) = [log for log in await services.logs() if log.origin == f"{acme.origin}/2"]
    signer = await open_signer(services.installation)
    await signer.sign_once()
    assert "closed permanently" in str(signer.refused[acme.origin])
    assert set(signer.refused) == {acme.origin}
    exported = await export(services, successor.origin, tmp_path / "successor", refused={acme.origin})
    verify_directory(exported, [signer.verifier_key(successor.origin)])
    (bundle,) = (exported / "tile/entries").iterdir()
    first = parse_bundle((bundle if bundle.is_file() else next(bundle.iterdir())).read_bytes())[0]
    continuation = check_continuation(first, [signer.verifier_key(acme.origin)])
    assert continuation is not None
    assert continuation.signed == kept.checkpoint

    secret = told.output.split("shown once: ")[1].split()[0]
    async with gateway.client(secret) as http:
        await services.gateway.admin.create_catalog(
            successor.log_id, OPERATOR, alias="lake", kind="builtin", options={}
        )
        (await http.post(NAMESPACES, json={"namespace": ["sales"]})).raise_for_status()
    found = await run(services, "verify", "--log", "acme")
    assert found.exit_code == 0, found.output
    assert successor.origin in found.output, "the tenant's name means the log that goes on"
