"""
What the installation has done to itself, told to the system log: migrations that ran, the signer's keys.

Told at every start under ids derived from the content, so that each is in the log once, whichever start was cut short.
A rotation of the signer's keys that was cut short is taken up.
"""

from __future__ import annotations

from lakeproof.provision import migrations
from lakeproof.services import Services, now
from ledger.events import MigrationApplied
from ledger.keys import format_key
from ledger.signing.key_directory import KeyDirectory
from ledger.signing.rotation import KeyKeeper
from ledger.signing.telling import told


async def tell_system_log(services: Services, keys: KeyDirectory) -> None:
    """
    Append what the system log does not have yet.

    Raises:
        LedgerError: if it cannot be appended.
    """
    for migration in migrations():
        applied = MigrationApplied(
            package=migration.package, number=migration.number, name=migration.name, sha256=migration.sha256
        )
        key = format_key("migration", (migration.package, str(migration.number)))
        await services.house.append(services.system.log_id, told(applied, key, occurred_at=now()))
    keeper = KeyKeeper(
        keys,
        origin=services.system.origin,
        append=lambda group: services.house.append(services.system.log_id, group),
        clock=now,
    )
    await keeper.tell_first()
    await keeper.finish()
