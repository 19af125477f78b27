"""
What the installation has done to itself, told to the system log: migrations that ran, the signer's key.

Told at every start under ids derived from the content, so that each is in the log once, whichever start was cut short.
"""

from __future__ import annotations

from lakeproof.provision import migrations
from lakeproof.services import Services, now
from ledger.canonical import Json
from ledger.event import SYSTEM_ACTOR, Event, derived_group_id, prepare
from ledger.events import EventData, MigrationApplied, SignerCreated, to_data
from ledger.keys import format_key
from ledger.note import VerifierKey
from ledger.sequence import Group


async def tell_system_log(services: Services, key: VerifierKey) -> None:
    """
    Append what the system log does not have yet.

    Raises:
        LedgerError: if it cannot be appended.
    """
    for migration in migrations():
        applied = MigrationApplied(
            package=migration.package, number=migration.number, name=migration.name, sha256=migration.sha256
        )
        await _tell(services, applied, format_key("migration", (migration.package, str(migration.number))))
    await _tell(services, SignerCreated(vkey=key.format()), format_key("signer", (key.key_id.hex(),)))


async def _tell(services: Services, event: EventData, key: str) -> None:
    data = to_data(event)
    content: Json = {"data": data, "key": key}
    prepared = prepare(
        Event(type=event.TYPE, version=event.VERSION, key=key, actor=SYSTEM_ACTOR, occurred_at=now(), data=data)
    )
    await services.house.append(
        services.system.log_id, Group(id=derived_group_id(event.TYPE, content), then=(prepared,))
    )
